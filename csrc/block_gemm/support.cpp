#include "block_gemm/family.h"

#include <algorithm>

#include "block_gemm/args.h"
#include "core/count_product.h"
#include "mainloop/direct_cost.h"

namespace mixed_gemm {
namespace {

constexpr TileTable kTiles = {"block", kBlockTileConfigs, kNumBlockTileConfigs};
constexpr int64_t kMaxCount = int64_t{1} << 30;  // of what kernels count in 32 bits, with room

// The cost of scaling the sums of a block, as K multiplied: 4 fp32 operations and a conversion for
// an output, 6 issue slots, against a product in 1 / 700 of a cycle. Derived, not measured.
constexpr double kFoldK = 100;

std::vector<Choice> choices() { return tile_choices(kTiles); }
std::string config(const Choice& c) { return tile_choice_name(kTiles, c); }
bool parse(const std::string& name, Choice& c) { return parse_tile_choice(name, kTiles, c); }

// Counted with sums given, whether they are or not: the choice depends on sizes alone, so that both
// give the same bits.
TileUse tile_use(const Choice& c, const BlockGemmProblem& p) {
  const TileConfig& tile = kBlockTileConfigs[c.row];
  return {tile, block_smem_bytes(tile, kBlockModes[BlockForm::of(p).mode(/*sums_given=*/true)])};
}

std::string why_not(const Choice& c, const BlockGemmProblem& p, const DeviceInfo& device) {
  const auto [tile, smem] = tile_use(c, p);
  const BlockForm form = BlockForm::of(p);
  const std::string too_large = why_not_smem(smem, device);
  if (!too_large.empty()) return too_large;
  if (c.split == SplitK::kParallel) {
    return "a parallel split needs a third launch: cluster and streamk share out K without one";
  }
  const std::string cluster = why_not_cluster(c, tile, smem, device);
  if (!cluster.empty()) return cluster;
  if (is_sliced(c.split) && c.slices > form.split_parts()) {
    return "split_k must not be larger than the number of parts of K that end with a block and " +
           std::to_string(kScaledTileK) + " k, " + std::to_string(form.split_parts()) + ", got " +
           std::to_string(c.slices);
  }
  if (c.split == SplitK::kStreamK && p.k == 0) return "K is 0: there is nothing to share out";
  const int64_t count =
      count_product({ceil_div(p.m, tile.m), ceil_div(p.n, tile.n),
                     c.split == SplitK::kStreamK ? form.split_parts() : c.slices});
  if (count > kMaxCount) {
    return "has " + std::to_string(count) + " tiles or parts of them, more than can be counted";
  }
  return "";
}

double predict_us(const Choice& c, const BlockGemmProblem& p, const DeviceInfo& d) {
  const BlockForm form = BlockForm::of(p);
  const double folds = kFoldK / static_cast<double>(std::max<int64_t>(form.padded, 1));
  const auto [tile, smem] = tile_use(c, p);
  return predict_direct_us(
      c, {tile, smem, p.m, p.n, form.k, form.split_parts(), form.split_lines(), folds}, d);
}

}  // namespace

const Family<BlockGemmProblem> BlockGemm::plan = {"block", choices,    config,  parse,
                                                  why_not, predict_us, tile_use};

std::string why_not_block_counts(const BlockGemmProblem& p) {
  const BlockForm form = BlockForm::of(p);
  const struct {
    const char* what;
    int64_t count;
    const char* hint;
  } counts[] = {
      {"M * blocks of K", p.m * form.blocks, "split M, or use a larger block_size"},
      {"N * blocks of K", p.n * form.blocks, "split N, or use a larger block_size"},
      {"K with blocks padded to 32", form.k, "split K and add the results"},
  };
  for (const auto& c : counts) {
    if (c.count <= kMaxCount) continue;
    return std::string(c.what) + " must be at most " + std::to_string(kMaxCount) +
           " on CUDA, got " + std::to_string(c.count) + " of M=" + std::to_string(p.m) +
           ", N=" + std::to_string(p.n) + ", K=" + std::to_string(p.k) +
           ", block_size=" + std::to_string(p.block_size) + ". Hint: " + c.hint;
  }
  return "";
}

}  // namespace mixed_gemm
