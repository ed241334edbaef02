// Mainloop of the wgmma family: one thread issues the TMA loads of the tokens, packed weights and
// scales of a k-tile; two warpgroups convert weights in registers, where wgmma reads them, while
// the products of the step before run.
#pragma once
#include <cstddef>
#include <type_traits>

#include "core/stage_check.h"
#include "dequant/folding_converter.h"
#include "hopper/tma_pipeline.cuh"
#include "hopper/warpgroup_mma.cuh"
#include "layout/swizzled_lines.h"
#include "wgmma/config.cuh"
#include "wgmma/fractional_zeros.cuh"
#include "wgmma/no_scaling.cuh"
#include "wgmma/sum_scaling.cuh"
#include "wgmma/weight_scaling.cuh"

namespace mixed_gemm {

// From an expert to the next one, in rows of the tensor maps.
struct ExpertRows {
  int of_weights = 0, of_scales = 0;
};
struct OneWeight {};

template <typename Config>
class WgmmaMainloop {
  using Layout = typename Config::Layout;
  using Converter = typename Config::Converter;
  using Mma = WarpgroupMma<typename Config::Format, Config::kTile.m>;
  static constexpr int kSteps = kTileK / kMmaK;
  static constexpr int kWords = Layout::kBlocksPerTile * 2;  // of a lane: two octets of columns
  static constexpr int kStepsPerBlock = kSteps / Layout::kBlocksPerTile;
  static constexpr int kRowTiles = Config::kRowTiles;
  static constexpr int kKTiles = Config::kTile.k_tiles;  // of a stage
  static constexpr bool kAsksForWhole = asks_for_integer_zeros(Config::kTile, Config::kScales);
  static constexpr bool kSumsFractions = adds_fractional_zeros(Config::kTile, Config::kScales);
  using Fractions = FractionalZeros<Config>;
  // Whether the products of two steps run while the next two steps' weights are converted: products
  // of few tokens and one row tile are too short to hide a conversion (151 for 157 us at 64 x 57344
  // x 8192). With two row tiles 32 tokens take 0.97 to 0.99 of the time, 64 without zero points
  // 0.96 to 0.99, with whole ones 0.99, with others 1.01; 16 lack registers beside a second block.
  template <typename Scaling>
  static constexpr bool kPairsSteps = Config::kTile.m <= 64 &&
                                      (kRowTiles == 1 || Config::kTile.m == 32 ||
                                       (Config::kTile.m == 16 && Config::kBlocks == 1) ||
                                       (Config::kTile.m == 64 &&
                                        Scaling::kZeroPoints != ZeroPoints::kAny));
  template <typename Scaling>
  static constexpr int kGroup = kPairsSteps<Scaling> ? 2 : 1;
  // Words of the next k-tile are loaded in front of the last products of the one before, not behind
  // them: 0.97 to 0.99 of the time there; 0.99 to 1.03 with other tiles.
  static constexpr bool kLoadsEarly =
      Config::kTile.m == 64 || (Config::kZeros && Config::kTile.k_tiles == 2);
  // Whether it loads words of the steps that are converted next, not of a whole k-tile: 32 x 256
  // with int8 has no registers for 16 words beside those of another block, and ptxas would let
  // every product wait for the one before it.
  static constexpr bool kLoadsByGroup =
      kWords == 8 && kRowTiles == 2 && Config::kTile.m == 32 && Config::kBlocks == 2;
  static constexpr int kLoads = kWords / 4;  // of a k-tile's words, two blocks each
  static constexpr int kFirstLoads = kLoadsByGroup ? 1 : kLoads;
  static_assert(!(kLoadsByGroup && kLoadsEarly), "words of a group go behind its predecessor");

 public:
  using Sums = typename Config::Sums;
  struct Copies : CodeValues<typename Config::Weight>,
                  std::conditional_t<Config::kGrouped, ExpertRows, OneWeight> {
    CUtensorMap tokens, weights, scales, zeros;
    StagedScales staged;
    UnfoldedZeros unfolded_zeros;
  };
  struct SharedStorage {
    alignas(1024) uint8_t stages[Config::kStages][Config::kStageBytes];
    RingBarriers<Config::kStages> barriers;
    std::conditional_t<kSumsFractions, typename Fractions::Shared, char> token_sums;
    std::conditional_t<Config::kHasTable, typename Config::Pairs::Storage, char> table;
  };

  // By all multiplying threads, which meet before they multiply.
  static __device__ void fill_table(const Copies& copies, SharedStorage& storage) {
    Converter::fill(storage.table, copies, threadIdx.x, Config::kMultiplyThreads);
  }

  __device__ WgmmaMainloop(const Copies& copies, SharedStorage& storage)
      : copies_(copies), storage_(storage), position_(storage.stages) {}

  static __device__ void prefetch_maps(const Copies& copies) {
    prefetch_map(copies.tokens);
    prefetch_map(copies.weights);
    if constexpr (Config::kScaled) prefetch_map(copies.scales);
    if constexpr (Config::kZeros) prefetch_map(copies.zeros);
  }

  // Takes the weight of this expert from now on.
  __device__ void enter(int expert) { expert_ = expert; }

  // --- the thread that issues the TMA loads ------------------------------------------------------
  // Asks for work steps [begin, end) of K (work_step_k()).
  __device__ void request(int row0, int column0, int begin, int end) {
    const int weight_row = column0 / Layout::kInterleave + first_weight_row();
    const StagedRows& rows = copies_.staged.rows;
    const int scale_bytes = (Config::kZeros ? 2 : 1) * rows.of_tile * Config::kScaleRowBytes;
    GroupStarts starts = copies_.staged.starts(begin * kKTiles);
    for (int work_step = begin; work_step < end; ++work_step, position_ = position_.next()) {
      const uint32_t full = position_.full_barrier();
      bool with_scales[kKTiles];
      int bytes = kKTiles * kOperandBytes;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kKTiles; ++i) {
        with_scales[i] = Config::kScaled && starts.enter(rows, work_step * kKTiles + i);
        bytes += with_scales[i] ? scale_bytes : 0;
      }
      position_.wait_empty();
      position_.expect(bytes);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kKTiles; ++i) {  // what lies behind the end of K reads as 0
        const int tile = work_step * kKTiles + i;
        const uint32_t to = k_tile(position_, i);
        position_.check_box(to, Config::kTokenBytes);
        position_.check_box(to + Config::kTokenBytes, Config::kWeightBytes);
        copy_box(copies_.weights, full, to + Config::kTokenBytes, tile * kLineBytes, weight_row);
        copy_box(copies_.tokens, full, to, tile * kTileK, row0);
        if (with_scales[i]) request_scales(tile, column0, full, to + kOperandBytes);
      }
    }
  }

  // --- the warps that multiply -------------------------------------------------------------------
  // Multiplies work steps [begin, end) of K for the tile at (row0, column0).
  __device__ void multiply(int row0, int column0, int begin, int end, Sums& sums) {
    if (begin >= end) return;
    begin *= kKTiles;
    end *= kKTiles;
    bool missed = false;
    if constexpr (!Config::kScaled) {
      multiply_tiles<NoScaling<Config>>(begin, end, sums);
    } else if constexpr (Config::kScales.row_k == kMmaK) {
      multiply_tiles<WeightScaling<Config, Config::kScaleRows>>(begin, end, sums);
    } else if (copies_.staged.rows.of_tile == 1) {
      missed = multiply_coarse(begin, end, sums);
    } else if (Config::kScaleRows == 2 || copies_.staged.rows.of_tile == 2) {
      multiply_tiles<WeightScaling<Config, 2>>(begin, end, sums);
    } else {
      multiply_tiles<WeightScaling<Config, Config::kScaleRows>>(begin, end, sums);
    }
    if constexpr (Converter::kResultScale != 1) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kSums; ++i) sums[i] *= Converter::kResultScale;
    }
    if constexpr (kAsksForWhole) {
      if (__any_sync(~0u, missed)) {
        unfolded_zeros().template add<Config>(copies_.staged, row0, column0, begin, end,
                                              sums.data());
      }
    } else if constexpr (kSumsFractions) {
      // A vote, since the compiler does not know that all have the same answer.
      if (__any_sync(~0u, missed)) {
        Fractions(unfolded_zeros(), copies_.staged, storage_.token_sums)
            .add(row0, column0, begin, end, sums.data());
      }
    }
    release(last_barrier_);
  }

 private:
  using Position =
      RingPosition<Config::kStages, Config::kStageBytes, offsetof(SharedStorage, barriers)>;
  static constexpr int kOperandBytes = Config::kTokenBytes + Config::kWeightBytes;

  __device__ void request_scales(int tile, int column0, uint32_t full, uint32_t to) const {
    const StagedRows& rows = copies_.staged.rows;
    for (int row = 0; row < rows.of_tile; row += rows.of_copy) {
      const int group = first_scale_row(copies_.staged.group(tile, row));
      check_scale_rows(row + rows.of_copy);
      copy_box(copies_.scales, full, to + row * Config::kScaleRowBytes, column0, group);
      if constexpr (Config::kZeros) {
        copy_box(copies_.zeros, full, to + Config::kScaleBytes + row * Config::kScaleRowBytes,
                 column0, group);
      }
    }
  }

  // Rows of the tensor maps, where those of an expert before end and its own begin. A copy of
  // scales for a k-tile behind the end of K takes the expert's last ones, as the next expert's may
  // be NaN.
  __device__ int first_weight_row() const {
    if constexpr (Config::kGrouped) return expert_ * copies_.of_weights;
    return 0;
  }
  __device__ int first_scale_row(int group) const {
    if constexpr (Config::kGrouped) {
      const int rows = copies_.of_scales;
      return expert_ * rows + min(group, max(0, rows - copies_.staged.rows.of_copy));
    }
    return group;
  }
  __device__ decltype(auto) unfolded_zeros() const {
    if constexpr (Config::kGrouped) {
      return copies_.unfolded_zeros.of_rows_from(expert_ * copies_.of_scales);
    } else {
      return (copies_.unfolded_zeros);
    }
  }

  // Rows of scales, and of zeros behind them, have the room of kScaleRows each.
  static __device__ void check_scale_rows(int rows) {
    MIXED_GEMM_CHECK_STAGE(0, rows * Config::kScaleRowBytes, Config::kScaleBytes);
  }

  // Multiplies groups of whole k-tiles. True: the conversion did not take away all zero points.
  __device__ bool multiply_coarse(int begin, int end, Sums& sums) {
    using OfWeights = WeightScaling<Config, 1>;
    using OfWhole = WeightScaling<Config, 1, ZeroPoints::kWhole>;
    using OfSums = SumScaling<Config>;
    constexpr bool kScalesSums = (Config::Weight::kIsInteger || Config::Weight::kHasBook) &&
                                 wgmma_scales_sums(Config::kTile, Config::kScales);
    if constexpr (kAsksForWhole) {
      position_.wait_full();
      if (IntegerZeros<Config>::lead(copies_.staged.folding,
                                     k_tile(position_, 0) + kOperandBytes)) {
        return multiply_tiles<std::conditional_t<kScalesSums, OfSums, OfWhole>>(begin, end, sums);
      }
      return multiply_tiles<OfWeights>(begin, end, sums);
    }
    const bool missed =
        multiply_tiles<std::conditional_t<kScalesSums, OfSums, OfWeights>>(begin, end, sums);
    if constexpr (!kSumsFractions) return false;
    return copies_.staged.folding.mask == 0 || !Config::meet_if_all(!missed);
  }

  // Scales are loaded in front of the last products if they have come, words behind these.
  template <typename Scaling>
  static constexpr bool kAsksAhead = Scaling::kLooksAhead && !kLoadsEarly;

  // Scaling: says what is done with scales, and when (no_scaling.cuh). True: it missed zero points.
  template <typename Scaling>
  __device__ bool multiply_tiles(int begin, int end, Sums& sums) {
    constexpr int kGroup = WgmmaMainloop::kGroup<Scaling>;
    static_assert(!kLoadsByGroup || kGroup * kLoads == kSteps, "a load of words for a group");
    uint32_t fragments[kSteps][kRowTiles][4];
    uint32_t words[kRowTiles][kWords];
    Scaling scaling(copies_.staged, begin);
    const Converter converter = make_converter();
    float* const products = scaling.products(sums);
    last_barrier_ = 0;
    word_offset_ = word_offset();
    position_.wait_full();
    const uint32_t first = k_tile(position_, 0);
    load_words(first, 0, kFirstLoads, words);
    scaling.see_next(begin);
    scaling.load_next(first + kOperandBytes);
    prepare(scaling, first, begin, 0);
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kGroup; ++step) {
      convert(converter, scaling, step, words, fragments[step]);
    }
    for (int tile = begin; tile < end; tile += kKTiles) {
      const Position next_stage = position_.next();
      bool next_full = false;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kKTiles; ++i) {
        const bool last = i == kKTiles - 1;
        const uint32_t here = k_tile(position_, i);
        const uint32_t behind = last ? k_tile(next_stage, 0) : k_tile(position_, i + 1);
        // Behind the last tile there is nothing to wait for, and words are read and converted in
        // vain: a way around it would be a branch in each.
        const auto load_next_words = [&] {
          if (last && !next_full && tile + kKTiles < end) next_stage.wait_full();
          load_words(behind, 0, kFirstLoads, words);
          if (kLoadsEarly || !next_full) scaling.load_next(behind + kOperandBytes);
        };
        const uint64_t tokens = swizzled_descriptor(here);
        const bool begins_sum = scaling.begin_tile(here + kOperandBytes, tile + i, sums);
        CUTLASS_PRAGMA_UNROLL
        for (int group = 0; group < kSteps; group += kGroup) {
          const int next = (group + kGroup) % kSteps;
          if (kLoadsEarly && next == 0) load_next_words();
          if (kAsksAhead<Scaling> && next == 0 && next_full) {
            scaling.load_next(behind + kOperandBytes);
          }
          cute::warpgroup_arrive();
          CUTLASS_PRAGMA_UNROLL
          for (int step = group; step < group + kGroup; ++step) {
            CUTLASS_PRAGMA_UNROLL
            for (int t = 0; t < kRowTiles; ++t) {
              Mma::multiply(products + t * Mma::kSums, fragments[step][t],
                            tokens + step * kDescriptorStep, step > 0 || !begins_sum);
            }
          }
          cute::warpgroup_commit_batch();
          if (group == 0) {
            if (last) next_full = next_stage.is_full();
            if (kAsksAhead<Scaling>) next_full = __all_sync(~0u, next_full);
            scaling.see_next(tile + i + 1);
          }
          if (!kLoadsEarly && next == 0) load_next_words();
          if (kLoadsByGroup && next != 0) {
            load_words(here, next / kGroup, next / kGroup + 1, words);
          }
          if (last && next == 0) {
            last_barrier_ = position_.empty_barrier();
            position_ = next_stage;
          }
          prepare(scaling, next == 0 ? behind : here, next == 0 ? tile + i + 1 : tile + i, next);
          cute::warpgroup_wait<1>();  // the group before is done
          if (i == 0 && group == 0 && last_barrier_ != 0) release(last_barrier_);
          CUTLASS_PRAGMA_UNROLL
          for (int step = next; step < next + kGroup; ++step) {
            convert(converter, scaling, step, words, fragments[step]);
          }
        }
      }
    }
    cute::warpgroup_wait<0>();
    pin<Config::kSums>(products);
    scaling.finish(sums);
    return scaling.missed();
  }

  __device__ Converter make_converter() const {
    if constexpr (Config::kHasTable) {
      return Converter(storage_.table);
    } else {
      return Converter();
    }
  }

  static __device__ uint32_t k_tile(const Position& stage, int i) {
    return stage.address() + i * Config::kKTileBytes;
  }

  __device__ void release(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) Position::release(barrier);
  }

  // Loads the words of blocks (2 l, 2 l + 1) of columns g and g + 8 for l in [begin, end):
  // words[t][4 l + 2 block + half].
  __device__ void load_words(uint32_t k_tile, int begin, int end,
                             uint32_t (&words)[kRowTiles][kWords]) const {
    constexpr int kRowTileBytes = 64 / Layout::kInterleave * kLineBytes;
    CUTLASS_PRAGMA_UNROLL
    for (int l = begin; l < end; ++l) {
      // With the offset alone left of the XOR, ptxas would keep the results for all l in registers.
      const uint32_t lane = (k_tile + word_offset_) ^ 2 * l * kChunkBytes;
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        load_matrices(lane + Config::kTokenBytes + t * kRowTileBytes,
                      *reinterpret_cast<uint32_t(*)[4]>(&words[t][4 * l]));
      }
    }
  }
  // Where a lane reads among the weights, of the first row tile and blocks; row tiles are whole
  // periods of the permutation apart, and a column's chunks differ in the lowest bits of their
  // numbers.
  static __device__ uint32_t word_offset() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = Config::column(warp, 0) + lane % 16;
    const int line = column / Layout::kInterleave;
    const int chunk = column % Layout::kInterleave * Layout::kBlocksPerTile + lane / 16;
    return SwizzledLines::offset(line, chunk);
  }

  // Prepares the scales of a group of steps, before the products of the one before are awaited.
  template <typename Scaling>
  __device__ void prepare(Scaling& scaling, uint32_t k_tile, int tile, int group) {
    CUTLASS_PRAGMA_UNROLL
    for (int step = group; step < group + kGroup<Scaling>; ++step) {
      scaling.prepare_step(k_tile + kOperandBytes, tile, step);
    }
  }

  template <typename Scaling>
  __device__ void convert(const Converter& converter, const Scaling& scaling, int step,
                          const uint32_t (&words)[kRowTiles][kWords],
                          uint32_t (&fragments)[kRowTiles][4]) const {
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const uint32_t word = words[t][2 * (step / kStepsPerBlock) + h];
        uint32_t pairs[2];
        scaling.convert(converter, word, step, step % kStepsPerBlock, t, h, pairs);
        for (int p = 0; p < 2; ++p) fragments[t][2 * p + h] = pairs[p];
      }
    }
  }

  const Copies& copies_;
  SharedStorage& storage_;
  Position position_;
  uint32_t last_barrier_;
  uint32_t word_offset_;  // made for every run: kept between these it is spilled
  int expert_ = 0;        // whose weight is multiplied
};

}  // namespace mixed_gemm
