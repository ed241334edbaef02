// Stores the sums of a warp of the wgmma family as scaled outputs. Only the copies of the next tile
// hide the epilogue of one, so its values of rows and columns are requested before the products and
// lie in shared memory after them: read from device memory there, a value at a time, the three
// vectors of a zero point cost a third of 28672 x 4096 with 256 rows.
#pragma once
#include <limits>
#include <type_traits>

#include "epilogue/scaled_output.cuh"

namespace mixed_gemm {

template <typename Config>
struct WgmmaScaledOutput {
  using SumType = typename Config::Sum;
  static constexpr TileConfig kTile = Config::kTile;
  static constexpr bool kBlocks = Config::Operand::kBlocks;  // whose scales are in the sums
  static constexpr bool kHasAzp = std::is_same_v<SumType, int32_t>;

  ScaledOutput<SumType> p;
  // int8: int32 holds a sum less any number up to this; negative: it does not hold every sum.
  int64_t room;

  // The values of the rows and columns of a tile, the bias as fp32. There are two, so that a thread
  // that is done with a tile does not wait for those that still store the one before.
  struct Vectors {
    float scale_b[kTile.n], bias[kTile.n], scale_a[kTile.m];
    int32_t azp_adj[kTile.n], azp[kTile.m];
  };
  struct Shared {
    Vectors vectors[2];
  };

  // A thread brings one column and one row.
  class Writer {
   public:
    __device__ Writer(const WgmmaScaledOutput& output, Shared& shared)
        : output_(output),
          args_(output.p.epilogue),
          shared_(static_cast<unsigned>(__cvta_generic_to_shared(shared.vectors))) {}

    __device__ void request(int row0, int column0) {
      const int row = min(row0 + thread(), output_.p.m - 1);
      const int column = min(column0 + thread(), output_.p.n - 1);
      if (thread() < kTile.m) {
        if (!kBlocks) scale_a_ = args_.scale_a.values[row * args_.scale_a.stride];
        if (kHasAzp && args_.kind == EpilogueKind::kAzpPerToken) azp_ = args_.azp[row];
      }
      if (thread() < kTile.n) {
        if (!kBlocks) scale_b_ = args_.scale_b.values[column * args_.scale_b.stride];
        bias_ = bias().bits(column);
        if (kHasAzp && args_.azp_adj != nullptr) azp_adj_ = args_.azp_adj[column];
      }
    }

    // Stores the sums of a thread in the tile at (row0, column0), for a slice of a parallel split.
    __device__ void store_partials(const SumType* sums, int slice, int row0, int column0) {
      each_part(sums, [&](const SumType* part, int row, int column) {
        output_.p.template store_partials<1, kOctets>(part, slice, row0 + row, column0 + column,
                                                      lane());
      });
    }

    // Stores the outputs of a thread in the tile at (row0, column0).
    __device__ void store(const SumType* sums, int row0, int column0) {
      const Vectors& vectors = share();
      const bool narrow = meet();
      const ScaledEpilogueArgs local = of_tile(vectors);
      each_part(sums, [&](const SumType* part, int row, int column) {
        constexpr int kAll = std::numeric_limits<int>::max();
        float values[4 * kOctets];
        const auto finish = [&](const auto& tree) {
          evaluate<1, kOctets>(tree, part, row + lane() / 4, column + lane() % 4 * 2, kAll, kAll,
                               values);
        };
        if constexpr (kBlocks) {
          with_blocks_epilogue(local, finish);
        } else {
          with_epilogue<SumType>(local, finish, narrow);
        }
        output_.p.template store_values<1, kOctets>(values, row0 + row, column0 + column, lane(),
                                                    kAllStoreBlocks);
      });
    }

   private:
    static constexpr int kOctets = kTile.warp_n / 8;
    // The zero points of rows up to three times their range away from 0; azp_adj has the rest of
    // the room.
    static constexpr int kNarrowAzp = 1024;

    static __device__ int thread() { return static_cast<int>(threadIdx.x); }
    static __device__ int lane() { return thread() % 32; }
    __device__ BiasVector bias() const { return {args_.bias, args_.out_type}; }

    // Calls use(sums, row, column) for a warp's 16 rows of the tile, and all its columns.
    template <typename Use>
    static __device__ void each_part(const SumType* sums, const Use& use) {
      const int group = thread() / 128;
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < Config::kRowTiles; ++t) {
        const int row = Config::group_row(group) + 64 * t + thread() / 32 % 4 * 16;
        if (has_few_rows(kTile) && row >= kTile.m) continue;  // alike in a warp
        use(sums + t * Config::kSumsPerTile, row, Config::group_column(group));
      }
    }

    __device__ const Vectors& share() {
      // It is made from an address of shared memory, or the loads of some trees are generic ones (1
      // to 5 % of 28672 x 4096 with 1024 rows and a zero point per token).
      const unsigned address = shared_ + turn_ * static_cast<unsigned>(sizeof(Vectors));
      Vectors& vectors = *static_cast<Vectors*>(__cvta_shared_to_generic(address));
      turn_ ^= 1;
      if (thread() < kTile.m) {
        if (!kBlocks) vectors.scale_a[thread()] = scale_a_;
        if (kHasAzp) vectors.azp[thread()] = azp_;
      }
      if (thread() < kTile.n) {
        if (!kBlocks) vectors.scale_b[thread()] = scale_b_;
        vectors.bias[thread()] = bias().value(bias_);
        if (kHasAzp) vectors.azp_adj[thread()] = azp_adj_;
      }
      return vectors;
    }

    // Returns when the shared values can be read, and whether fits() holds for all.
    __device__ bool meet() const {
      if constexpr (kHasAzp) return Config::meet_if_all(fits());
      Config::meet();
      return true;
    }

    // Whether int32 holds a sum less the products of this thread's row and column, whichever it is.
    __device__ bool fits() const {
      const bool per_token = args_.kind == EpilogueKind::kAzpPerToken;
      const int64_t most = per_token ? output_.room / kNarrowAzp : output_.room;
      return -most <= azp_adj_ && azp_adj_ <= most && -kNarrowAzp <= azp_ && azp_ <= kNarrowAzp;
    }

    __device__ ScaledEpilogueArgs of_tile(const Vectors& v) const {
      ScaledEpilogueArgs args;
      args.kind = args_.kind;
      args.scale_a = {v.scale_a, 1};
      args.scale_b = {v.scale_b, 1};
      args.bias = args_.bias ? v.bias : nullptr;
      args.azp_adj = v.azp_adj;
      args.azp = v.azp;
      args.out_type = ElementType::kFloat32;  // of the bias
      return args;
    }

    const WgmmaScaledOutput& output_;
    const ScaledEpilogueArgs& args_;
    unsigned shared_;    // address of the vectors
    unsigned turn_ = 0;  // of the two
    float scale_a_ = 0, scale_b_ = 0;
    uint32_t bias_ = 0;
    int32_t azp_adj_ = 0, azp_ = 0;
  };
};

}  // namespace mixed_gemm
