// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// AMPSCALER_API marks what libampscaler.so offers; everything else is hidden.

#define AMPSCALER_API __attribute__((visibility("default")))
