// The blocked paths, on vectors and on tiles: one driver, by the table and by how A is prepared.
#include <atomic>

#include "cpu/epilogue_cpu.h"
#include "cpu/gemm/activation_panel.h"
#include "cpu/gemm/activation_tiles.h"
#include "cpu/gemm/paths.h"

namespace mixed_gemm::cpu {
namespace {

constexpr int64_t kRowsPerChunk = 256;    // rows of A that one filling of a slab serves, at most
constexpr int64_t kRowsPerPass = 1024;    // rows prepared at once: bounds the scratch memory
constexpr int64_t kColumnsPerLoad = 128;  // columns whose scales are converted at once, at least

// The size of equal parts of `total`, as few as have at most `limit`.
int64_t even_part(int64_t total, int64_t limit) { return ceil_div(total, ceil_div(total, limit)); }

// Holds the tile registers of this thread for the scope.
class TileScope {
 public:
  TileScope(const TileKernels* tiles, int64_t segments_per_group) : tiles_(tiles) {
    if (tiles_) tiles_->begin(segments_per_group);
  }
  ~TileScope() {
    if (tiles_) tiles_->end();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const TileKernels* tiles_;
};

// One pass over up to kRowsPerPass rows of A, already in `a` (ActivationPanel, ActivationTiles).
template <typename Activations>
class DensePass {
 public:
  // scaled: slabs are of weights times scales, and all of K is one group.
  DensePass(const CallShape& shape, const TileKernels* tiles, const Activations& a,
            const EpilogueCpu& epilogue, bool scaled)
      : shape_(shape),
        tiles_(tiles),
        scaled_(scaled),
        dense_(tiles ? tiles->dense : shape.operands.dense),
        a_(a),
        epilogue_(epilogue),
        panel_columns_(kUnitsPerPanel * shape.kernels.lanes),
        blocks_per_chunk_(even_part(a.num_blocks(), kRowsPerChunk / dense_.block_rows)),
        blocking_(blocking()),
        panels_per_block_(std::max<int64_t>(1, blocking_.columns / panel_columns_)),
        panels_per_load_(
            round_up(std::max<int64_t>(1, kColumnsPerLoad / panel_columns_), panels_per_block_)),
        slab_tiles_(even_part(std::max<int64_t>(1, shape.tiles),
                              blocking_.slab_words * dense_.depth / kTileK)),
        ones_(panel_columns_) {
    std::fill(ones_.data(), ones_.data() + panel_columns_, 1.f);
  }

  int64_t num_panels() const { return ceil_div(shape_.p.n, panel_columns_); }
  int64_t num_chunks() const { return ceil_div(a_.num_blocks(), blocks_per_chunk_); }
  int64_t panel_work() const {
    return blocks_per_chunk_ * dense_.block_rows * shape_.tiles * kTileK * panel_columns_;
  }

  // Computes panels [begin, end) of row chunk `chunk`.
  void run(int64_t chunk, int64_t begin, int64_t end) const {
    const int64_t block_begin = chunk * blocks_per_chunk_;
    const int64_t block_end = std::min(block_begin + blocks_per_chunk_, a_.num_blocks());
    const int64_t width = std::min(panels_per_block_, end - begin) * panel_columns_;
    Scratch scratch{AlignedBuffer(slab_tiles_ * kTileK / dense_.depth * width),
                    AlignedBuffer((one_slab() ? 1 : block_end - block_begin) * tile_size(width)),
                    UnitScales(shape_, panels_per_load_ * kUnitsPerPanel), width};
    const TileScope tiles(tiles_, scaled_ ? segments() : shape_.segments_per_group);
    for (int64_t panel = begin; panel < end; panel += panels_per_block_) {
      if ((panel - begin) % panels_per_load_ == 0) {
        scratch.scales.load(panel * kUnitsPerPanel,
                            std::min(panel + panels_per_load_, end) * kUnitsPerPanel);
      }
      run_region({block_begin, block_end, panel, std::min(panel + panels_per_block_, end)},
                 scratch);
    }
  }

 private:
  struct Region {
    int64_t block_begin, block_end, panel_begin, panel_end;
  };
  struct Scratch {
    AlignedBuffer slab;   // [panel][K of the slab / depth][panel_columns_] words
    AlignedBuffer tiles;  // of each row block, or of the one at work: sums and open sums
    UnitScales scales;
    int64_t width;  // columns of a tile
  };

  int64_t segments() const { return shape_.tiles * (kTileK / kSegmentK); }  // of K

  // The scales that meet the sums of a unit's columns.
  ColumnScales scales_of_sums(const Scratch& scratch, int64_t unit) const {
    if (!scaled_) return scratch.scales.at(unit);
    return {ones_.data(), ones_.data(), 0, segments(), ZeroMode::kNone};
  }

  Blocking blocking() const {
    const int64_t a_bytes =
        blocks_per_chunk_ * dense_.block_rows * shape_.tiles * kTileK * a_.block(0).parts * 2;
    return tiles_ && a_bytes <= tiles_->narrow_bytes ? tiles_->narrow[shape_.weight()]
                                                     : dense_.blocking;
  }
  bool one_slab() const { return shape_.tiles <= slab_tiles_; }
  int64_t tile_size(int64_t width) const { return dense_.depth * dense_.block_rows * width; }

  void run_region(const Region& region, Scratch& scratch) const {
    int64_t tile = 0;
    do {  // once even when K is 0
      const int64_t tile_end = std::min(tile + slab_tiles_, shape_.tiles);
      fill_slab(region, scratch, tile, tile_end);
      for (int64_t i = region.block_begin; i < region.block_end; ++i) {
        const auto block = a_.block(i);
        float* sums = scratch.tiles.data() +
                      (one_slab() ? 0 : i - region.block_begin) * tile_size(scratch.width);
        multiply(region, scratch, block, tile, tile_end, sums);
        if (tile_end < shape_.tiles) continue;
        epilogue_.finish(sums, scratch.width, block.first, block.real,
                         region.panel_begin * panel_columns_,
                         (region.panel_end - region.panel_begin) * panel_columns_);
      }
      tile = tile_end;
    } while (tile < shape_.tiles);
  }

  float* slab_panel(const Scratch& scratch, int64_t index) const {
    return scratch.slab.data() + index * slab_tiles_ * kTileK / dense_.depth * panel_columns_;
  }

  void fill_slab(const Region& region, const Scratch& scratch, int64_t tile,
                 int64_t tile_end) const {
    for (int64_t panel = region.panel_begin; panel < region.panel_end; ++panel) {
      float* to = slab_panel(scratch, panel - region.panel_begin);
      for (int u = 0; u < kUnitsPerPanel; ++u, to += shape_.kernels.lanes) {
        const int64_t unit = panel * kUnitsPerPanel + u;
        const auto& fill = scaled_ ? dense_.fill_scaled : dense_.fill;
        fill[shape_.weight()](shape_.columns(unit), scratch.scales.at(unit), tile, tile_end, to,
                              panel_columns_);
      }
    }
  }

  void multiply(const Region& region, const Scratch& scratch, const ActivationBlock& block,
                int64_t tile, int64_t tile_end, float* sums) const {
    const int64_t k_begin = tile * kTileK, k_end = std::min(tile_end * kTileK, shape_.p.k);
    if (k_end == 0) std::fill(sums, sums + tile_size(scratch.width), 0.f);
    const ActivationRows rows = block.from(k_begin, dense_.depth);
    for (int64_t panel = region.panel_begin; panel < region.panel_end; ++panel) {
      const int64_t index = panel - region.panel_begin;
      const PanelSlab slab{slab_panel(scratch, index),
                           scales_of_sums(scratch, panel * kUnitsPerPanel), k_begin, k_end,
                           k_end == shape_.p.k};
      float* c = sums + index * panel_columns_;
      dense_.multiply[block.choice](rows, slab, c, c + dense_.block_rows * scratch.width,
                                    scratch.width);
    }
  }

  const CallShape& shape_;
  const TileKernels* tiles_;
  bool scaled_;
  const DenseKernels& dense_;
  const Activations& a_;
  const EpilogueCpu& epilogue_;
  int64_t panel_columns_, blocks_per_chunk_;
  Blocking blocking_;
  int64_t panels_per_block_, panels_per_load_, slab_tiles_;
  AlignedBuffer ones_;
};

// The least rows for which weights are scaled instead of sums. 4096 x 4096, e2m1, tiles, 2 cores of
// a Xeon with AMX, over scaled sums: groups of 32 1.16 with 16 rows, 0.84, 0.66, 0.47 and 0.45 with
// 32, 64, 256 and 512; groups of 16, which are half of a tile's step, 0.94, 0.66, 0.45, 0.30, 0.29.
constexpr int64_t kLeastRowsToScaleWeights = 32;

// Whether slabs of weights times scales are made. It is one answer for all columns, or their bits
// would depend on the threads.
bool scales_weights(const CallShape& shape, const DenseKernels& dense,
                    const ParallelFor& parallel_for) {
  const bool could = shape.p.m >= kLeastRowsToScaleWeights && shape.groups > 1 &&
                     dense.fill_scaled[shape.weight()] != nullptr &&
                     shape.p.scheme.scales.zeros == ZeroMode::kNone;
  if (!could) return false;
  std::atomic<bool> all{true};
  const int64_t work = shape.groups_pad * shape.kernels.lanes;
  parallel_for(0, shape.units(), CallShape::grain(work), [&](int64_t begin, int64_t end) {
    UnitScales scales(shape, 1);
    for (int64_t unit = begin; unit < end && all; ++unit) {
      scales.load(unit, unit + 1);
      if (!scales.make_pairs()) all = false;
    }
  });
  return all;
}

template <typename Activations>
void run_blocked(const CallShape& shape, const TileKernels* tiles,
                 const ParallelFor& parallel_for) {
  const GemmProblem& problem = shape.p;
  const EpilogueCpu epilogue(shape);
  const DenseKernels& dense = tiles ? tiles->dense : shape.operands.dense;
  const int64_t block_rows = dense.block_rows;
  const bool scaled = scales_weights(shape, dense, parallel_for);
  const int64_t rows = round_up(even_part(problem.m, kRowsPerPass), block_rows);
  for (int64_t row = 0; row < problem.m; row += rows) {
    const int64_t row_end = std::min(row + rows, problem.m);
    const Activations a(shape, row, row_end, parallel_for);
    const DensePass<Activations> pass(shape, tiles, a, epilogue, scaled);
    // Tasks go chunk by chunk, so that one is a run of neighbouring panels of a chunk (rarely two).
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

}  // namespace

void gemm_dense(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for) {
  run_blocked<ActivationPanel>(CallShape(problem, kernels), nullptr, parallel_for);
}

void gemm_tiles(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for) {
  run_blocked<ActivationTiles>(CallShape(problem, kernels), kernels.tiles, parallel_for);
}

}  // namespace mixed_gemm::cpu
