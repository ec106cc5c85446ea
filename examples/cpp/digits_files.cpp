// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Plain CSV: a line of titles, then numbers and words without quotes.

#include "digits_files.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace {

constexpr std::size_t kPixels = 64;
constexpr float kLargestPixel = 16;

using Row = std::vector<std::string>;

Row split_line(const std::string& line) {
  Row cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) {
    cells.push_back(cell);
  }
  return cells;
}

/// All rows below the titles, each with `columns` cells.
std::vector<Row> read_rows(const std::string& path, std::size_t columns) {
  std::ifstream file(path);
  std::vector<Row> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    rows.push_back(split_line(line));
    if (rows.back().size() != columns) {
      throw std::runtime_error(path + " has a line with other than " + std::to_string(columns) +
                               " cells: " + line);
    }
  }
  if (rows.empty()) {
    throw std::runtime_error("cannot read " + path + "; examples/python/train_digits.py writes it");
  }
  return rows;
}

/// The pictures and labels of one split while they are collected.
struct Collected {
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;

  void add(const Row& row) {
    labels.push_back(std::stoll(row[1]));
    for (std::size_t index = 2; index < row.size(); ++index) {
      pixels.push_back(std::stof(row[index]) / kLargestPixel);
    }
  }
  torch::Tensor image_tensor(torch::Device device) const {
    return torch::tensor(pixels).view({-1, kPixels}).to(device);
  }
  torch::Tensor label_tensor(torch::Device device) const {
    return torch::tensor(labels).to(device);
  }
};

}  // namespace

Digits read_digits(const std::string& path, torch::Device device) {
  Collected train;
  Collected test;
  for (const Row& row : read_rows(path, 2 + kPixels)) {
    (row[0] == "train" ? train : test).add(row);
  }
  return {train.image_tensor(device), train.label_tensor(device), test.image_tensor(device),
          test.label_tensor(device)};
}

std::vector<Step> read_scale_trace(const std::string& path) {
  std::vector<Step> steps;
  for (const Row& row : read_rows(path, 4)) {
    steps.push_back({std::stod(row[1]), std::stod(row[2]), row[3] == "1"});
  }
  return steps;
}
