// fp8 x fp8 on tile registers: rows of A are prepared once for all columns, columns of B are
// decoded to bf16 a slab at a time, which stays in L2 while the rows go by.
#include <algorithm>
#include <vector>

#include "cpu/aligned_buffer.h"
#include "cpu/scaled_mm/float8.h"

namespace mixed_gemm::cpu {
namespace {

constexpr int64_t kTile = 16, kStepK = 32, kTileBytes1 = 1024;
constexpr int64_t kMaxTileRows = 256;  // of A, prepared at once
constexpr int64_t kSlabK = 128;        // of K where there are no blocks

class Float8TilePass {
 public:
  // Prepares rows [first, end) of A.
  Float8TilePass(const Float8TileKernels& kernels, const Float8Call& call, int64_t first,
                 int64_t end, const ParallelFor& parallel_for)
      : kernels_(kernels),
        call_(call),
        first_(first),
        rows_(end - first),
        row_tiles_(ceil_div(rows_, kTile)),
        step_bytes_(row_tiles_ * kTileBytes1),
        a_(call.count * segment_bytes() / 4),
        scale_a_(call.scaled() ? call.count * row_tiles_ * kTile : 0) {
    const ScaledMmProblem& p = call.p;
    const auto* a = static_cast<const uint8_t*>(p.a);
    const auto prepare = [&](int64_t begin, int64_t last) {
      for (int64_t i = begin; i < last; ++i) {
        const int64_t tile = i % row_tiles_, g = i / row_tiles_, row = tile * kTile;
        const auto count = static_cast<int>(std::min(kTile, rows_ - row));
        const uint8_t* from = a + (first_ + row) * p.lda + g * call.segments.length;
        kernels.prepare(from, p.lda, count, call.length_of(g), padded(g),
                        prepared(g) + tile * kTileBytes1, step_bytes_);
      }
    };
    const int64_t work = 4 * kTile * call.segments.length;
    parallel_for(0, row_tiles_ * call.count, CallShape::grain(work), prepare);
    for (int64_t g = 0; call.scaled() && g < call.count; ++g) {
      for (int64_t r = 0; r < row_tiles_ * kTile; ++r) {
        scale_of(g)[r] = r < rows_ ? p.scale_a[(first_ + r) * p.scale_a_stride + g] : 0.f;
      }
    }
  }

  // The fewer rows, the fewer columns, so that two tiles of them stay in L1.
  int64_t columns_at_once() const {
    return std::clamp<int64_t>(round_up(row_tiles_, 2), 2, 8) * kTile;
  }
  int64_t work() const { return row_tiles_ * kTile * columns_at_once() * call_.p.k / 16; }

  // The scratch of one thread.
  struct Scratch {
    AlignedBuffer b, sums, by_row;
    std::vector<const float*> scale_b;
  };
  Scratch scratch() const {
    const int64_t columns = columns_at_once();
    return {AlignedBuffer(columns * call_.segments.padded / 2),
            AlignedBuffer(columns * row_tiles_ * kTile), AlignedBuffer(kTile * columns),
            std::vector<const float*>(static_cast<size_t>(columns))};
  }

  // Computes the columns [column, end).
  void run(int64_t column, int64_t end, const ScaledEpilogueCpu& epilogue, Scratch& s) const {
    const int64_t stride = row_tiles_ * kTile, tiles = ceil_div(end - column, kTile);
    std::fill_n(s.sums.data(), tiles * kTile * stride, 0.f);
    for (int64_t c = 0; call_.scaled() && c < tiles * kTile; ++c) {
      s.scale_b[static_cast<size_t>(c)] = call_.scale_b_of(column + c);
    }
    for (int64_t g = 0; g < call_.count; ++g) {
      decode(g, column, end, s);
      for (int64_t t = 0; t < tiles; t += 2) {
        const int wide = t + 1 < tiles;
        for (int64_t r = 0; r < row_tiles_; r += 2) {
          multiply(g, t, wide, r, s);
        }
      }
    }
    finish(column, end, epilogue, s);
  }

 private:
  int64_t padded(int64_t g) const { return round_up(call_.length_of(g), 2 * kStepK); }
  int64_t segment_bytes() const { return call_.segments.padded / kStepK * step_bytes_; }
  char* prepared(int64_t g) const {
    return reinterpret_cast<char*>(a_.data()) + g * segment_bytes();
  }
  float* scale_of(int64_t g) const { return scale_a_.data() + g * row_tiles_ * kTile; }
  int64_t b_tile_bytes() const { return call_.segments.padded / kStepK * kTileBytes1; }

  void decode(int64_t g, int64_t column, int64_t end, Scratch& s) const {
    const ScaledMmProblem& p = call_.p;
    const auto* b = static_cast<const uint8_t*>(p.b) + g * call_.segments.length;
    auto* to = reinterpret_cast<char*>(s.b.data());
    for (int64_t j = column; j < end; j += kTile, to += b_tile_bytes()) {
      const auto count = static_cast<int>(std::min(kTile, end - j));
      kernels_.decode(b + j * p.ldb, p.ldb, count, call_.length_of(g), padded(g), to);
    }
  }

  void multiply(int64_t g, int64_t tile, int wide, int64_t row_tile, Scratch& s) const {
    const int64_t stride = row_tiles_ * kTile, row = row_tile * kTile;
    const Float8TileKernels::Operands o = {
        prepared(g) + row_tile * kTileBytes1,
        step_bytes_,
        reinterpret_cast<const char*>(s.b.data()) + tile * b_tile_bytes(),
        b_tile_bytes(),
        padded(g) / kStepK,
        call_.scaled() ? scale_of(g) + row : nullptr,
        s.scale_b.data() + tile * kTile,
        g};
    kernels_.multiply[wide][row_tile + 1 < row_tiles_](
        o, s.sums.data() + tile * kTile * stride + row, stride);
  }

  // Sums are [column, row]; the epilogue takes rows.
  void finish(int64_t column, int64_t end, const ScaledEpilogueCpu& epilogue, Scratch& s) const {
    const int64_t stride = row_tiles_ * kTile, columns = end - column;
    for (int64_t row = 0; row < rows_; row += kTile) {
      const int64_t count = std::min(kTile, rows_ - row);
      for (int64_t c = 0; c < columns; ++c) {
        const float* from = s.sums.data() + c * stride + row;
        for (int64_t r = 0; r < count; ++r) s.by_row.data()[r * columns + c] = from[r];
      }
      epilogue.finish(s.by_row.data(), columns, first_ + row, count, column, columns);
    }
  }

  const Float8TileKernels& kernels_;
  const Float8Call& call_;
  int64_t first_, rows_, row_tiles_, step_bytes_;
  AlignedBuffer a_, scale_a_;
};

// Holds the tile registers of a thread while it has them.
class TileRegisters {
 public:
  explicit TileRegisters(const Float8TileKernels& kernels) : kernels_(kernels) { kernels.begin(); }
  ~TileRegisters() { kernels_.end(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  const Float8TileKernels& kernels_;
};

}  // namespace

void float8_in_tiles(const Float8TileKernels& kernels, const ScaledMmProblem& p,
                     const ScaledEpilogueCpu& epilogue, const ParallelFor& parallel_for) {
  const Float8Call call(p, 2 * kStepK, kSlabK);
  for (int64_t first = 0; first < p.m; first += kMaxTileRows) {
    const int64_t end = std::min(first + kMaxTileRows, p.m);
    const Float8TilePass pass(kernels, call, first, end, parallel_for);
    const int64_t columns = pass.columns_at_once();
    parallel_for(0, ceil_div(p.n, columns), CallShape::grain(pass.work()),
                 [&](int64_t begin, int64_t last) {
                   Float8TilePass::Scratch scratch = pass.scratch();
                   const TileRegisters registers(kernels);
                   for (int64_t i = begin; i < last; ++i) {
                     pass.run(i * columns, std::min((i + 1) * columns, p.n), epilogue, scratch);
                   }
                 });
  }
}

}  // namespace mixed_gemm::cpu
