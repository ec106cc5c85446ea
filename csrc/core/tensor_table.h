// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// A list of flat tensors as one kernel argument: tensors are cut into chunks, chunks are numbered
// through, and a block finds the tensor of its chunk by binary search.
//
//   tensor 0 (2.5 chunks)   tensor 1 (1 chunk)
//   chunks [0 1 2]          [3]                    first_chunk = {0, 3, 4}

#include <cstdint>

#include "core/macros.h"

namespace ampscaler::core {

/// Elements of one chunk: enough work for a block, few enough that small lists still fill a GPU.
inline constexpr std::int64_t kChunkElements = 4096;

/// A gradient as flat memory.
struct FlatTensor {
  void* data;
  std::int64_t size;  // elements
};

/// Up to kCapacity tensors. 110 of them make a kernel argument of 2.6 KB; CUDA's limit for all
/// arguments is 4 KB on old drivers.
struct TensorTable {
  static constexpr int kCapacity = 110;

  FlatTensor tensors[kCapacity];
  std::int64_t first_chunk[kCapacity + 1];
  int count;
};

inline bool is_full(const TensorTable& table) { return table.count == TensorTable::kCapacity; }

inline std::int64_t chunk_count(const TensorTable& table) { return table.first_chunk[table.count]; }

/// Appends a tensor with at least one element; the table must not be full.
inline void append(TensorTable& table, FlatTensor tensor) {
  const std::int64_t chunks = (tensor.size - 1) / kChunkElements + 1;
  table.tensors[table.count] = tensor;
  table.first_chunk[table.count + 1] = table.first_chunk[table.count] + chunks;
  ++table.count;
}

/// A chunk's tensor and its range of elements.
struct Chunk {
  int tensor;
  std::int64_t begin;
  std::int64_t end;
};

AMPSCALER_HOST_DEVICE inline Chunk find_chunk(const TensorTable& table, std::int64_t chunk) {
  int low = 0;
  int high = table.count - 1;
  while (low < high) {  // the last tensor whose first chunk is not beyond `chunk`
    const int middle = (low + high + 1) / 2;
    if (table.first_chunk[middle] <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const std::int64_t begin = (chunk - table.first_chunk[low]) * kChunkElements;
  const std::int64_t size = table.tensors[low].size;
  return {low, begin, size - begin < kChunkElements ? size : begin + kChunkElements};
}

}  // namespace ampscaler::core
