#include "cpu/activation_panel.h"
#include "cpu/epilogue_cpu.h"
#include "cpu/gemm_paths.h"

namespace mixed_gemm::cpu {
namespace {

// Cache blocking after Goto and van de Geijn (2008), with AVX-512: a slab of one dequantized panel
// (128 x 32 floats, 16 KB) stays in L1 while the row blocks pass by; the slab of A (256 x 128, 128
// KB) and the sums of eight panels (256 x 256, 256 KB) stay in L2. Of slabs of 64 to 512, chunks of
// 128 to 512 and blocks of 4 to 16 panels the fastest on a Cascade Lake: 113 GFLOP/s a core at M =
// 256 and 1024, where MKL reaches 106 and 124.
constexpr int64_t kSlabTiles = 2;       // elements of K in a slab, in tiles of 64
constexpr int64_t kRowsPerChunk = 256;  // rows of A that one dequantization serves
constexpr int64_t kRowsPerPass = 1024;  // rows prepared at once: bounds the scratch memory
constexpr int64_t kPanelsPerBlock = 8;  // panels that share a slab of A

// One pass over up to kRowsPerPass rows of A, already in `a`.
class DensePass {
 public:
  DensePass(const CallShape& shape, const ActivationPanel& a, const EpilogueCpu& epilogue)
      : shape_(shape),
        a_(a),
        epilogue_(epilogue),
        panel_columns_(kUnitsPerPanel * shape.kernels.lanes) {}

  int64_t num_panels() const { return ceil_div(shape_.p.n, panel_columns_); }
  int64_t num_chunks() const { return ceil_div(a_.num_blocks(), kBlocksPerChunk); }
  int64_t panel_work() const {
    return std::min(kRowsPerChunk, shape_.p.m) * shape_.tiles * kTileK * panel_columns_;
  }

  // Panels [begin, end) of row chunk `chunk`.
  void run(int64_t chunk, int64_t begin, int64_t end) const {
    const int64_t block_begin = chunk * kBlocksPerChunk;
    const int64_t block_end = std::min(block_begin + kBlocksPerChunk, a_.num_blocks());
    const int64_t sums_size =
        kPanelsPerBlock * (block_end - block_begin) * kMaxRows * panel_columns_;
    const AlignedBuffer sums(sums_size);
    for (int64_t panel = begin; panel < end; panel += kPanelsPerBlock) {
      const Region region{block_begin, block_end, panel, std::min(panel + kPanelsPerBlock, end)};
      std::fill(sums.data(), sums.data() + sums_size, 0.f);
      accumulate(region, sums.data());
      write(region, sums.data());
    }
  }

 private:
  static constexpr int64_t kBlocksPerChunk = kRowsPerChunk / kMaxRows;

  struct Region {
    int64_t block_begin, block_end, panel_begin, panel_end;
  };

  // Where the sums of one row block and panel lie, [kMaxRows, panel_columns_].
  int64_t sums_offset(const Region& region, int64_t block, int64_t panel) const {
    const int64_t blocks = region.block_end - region.block_begin;
    return ((panel - region.panel_begin) * blocks + block - region.block_begin) * kMaxRows *
           panel_columns_;
  }

  void accumulate(const Region& region, float* sums) const {
    const CpuKernels& kernels = shape_.kernels;
    UnitScales scales(shape_, kPanelsPerBlock * kUnitsPerPanel);
    scales.load(region.panel_begin * kUnitsPerPanel, region.panel_end * kUnitsPerPanel);
    const AlignedBuffer slab(kSlabTiles * kTileK * panel_columns_);
    for (int64_t tile = 0; tile < shape_.tiles; tile += kSlabTiles) {
      const int64_t tile_end = std::min(tile + kSlabTiles, shape_.tiles);
      const int64_t k = tile * kTileK, k_count = std::min(tile_end * kTileK, shape_.p.k) - k;
      for (int64_t panel = region.panel_begin; panel < region.panel_end; ++panel) {
        for (int u = 0; u < kUnitsPerPanel; ++u) {
          const int64_t unit = panel * kUnitsPerPanel + u;
          kernels.dequantize[shape_.bits_index()](shape_.columns(unit), scales.at(unit), tile,
                                                  tile_end, slab.data() + u * kernels.lanes,
                                                  panel_columns_);
        }
        for (int64_t i = region.block_begin; i < region.block_end; ++i) {
          const auto block = a_.block(i);
          kernels.multiply[block.choice](block.data.values + k * block.rows, slab.data(), k_count,
                                         sums + sums_offset(region, i, panel));
        }
      }
    }
  }

  void write(const Region& region, float* sums) const {
    for (int64_t panel = region.panel_begin; panel < region.panel_end; ++panel) {
      for (int64_t i = region.block_begin; i < region.block_end; ++i) {
        const auto block = a_.block(i);
        epilogue_.finish(sums + sums_offset(region, i, panel), panel_columns_, block.first,
                         block.real, panel * panel_columns_, panel_columns_);
      }
    }
  }

  const CallShape& shape_;
  const ActivationPanel& a_;
  const EpilogueCpu& epilogue_;
  int64_t panel_columns_;
};

}  // namespace

void gemm_dense(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for) {
  const CallShape shape(problem, kernels);
  const EpilogueCpu epilogue(shape);
  for (int64_t row = 0; row < problem.m; row += kRowsPerPass) {
    const int64_t row_end = std::min(row + kRowsPerPass, problem.m);
    const ActivationPanel a(shape, row, row_end, parallel_for);
    const DensePass pass(shape, a, epilogue);
    // Chunk-major, so that a task is a run of neighbouring panels of one chunk (rarely two).
    const int64_t panels = pass.num_panels();
    const int64_t grain = CallShape::grain(pass.panel_work());
    parallel_for(0, pass.num_chunks() * panels, grain, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t chunk = begin / panels, chunk_end = std::min(end, (chunk + 1) * panels);
        pass.run(chunk, begin - chunk * panels, chunk_end - chunk * panels);
        begin = chunk_end;
      }
    });
  }
}

}  // namespace mixed_gemm::cpu
