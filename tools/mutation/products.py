"""Kernels that multiply by 4 and 8 bit weights, and how their work is shared."""

from __future__ import annotations

from .edit import Edit

EDITS = (
    Edit(
        "awq/converter.h",
        """
    if (!in_place(t)) return biased(word, t);
""",
        """
    if (MUTATED(AwqZeroColumn)) word = word >> 16 | word << 16;
    if (!in_place(t)) return biased(word, t);
""",
    ),
    Edit(
        "awq/kernel.cuh",
        """
    load_words_if<kWholeLines>(has_group(step, k_left), zeros_, p_.qzeros + group_word_);
""",
        """
    const bool before = MUTATED(AwqZeroRow) && p_.group.div(at) > 0;
    load_words_if<kWholeLines>(has_group(step, k_left), zeros_,
                               p_.qzeros + group_word_ - (before ? row_words() : 0));
""",
    ),
    Edit(
        "awq/reduction.cuh",
        """
      if (warp < k_warps) add(sum, from[warp * kTile]);
""",
        """
      if (warp < k_warps - (MUTATED(AwqWarp) ? 1 : 0)) add(sum, from[warp * kTile]);
""",
    ),
    Edit(
        "epilogue/finish_output.cuh",
        """
      : scale(column_values(p.channel_scale, 1.f, column, p.n)),
""",
        """
      : scale(column_values(MUTATED(DroppedFactor) ? nullptr : p.channel_scale, 1.f, column, p.n)),
""",
    ),
    Edit(
        "epilogue/store_tile.cuh",
        """
    if (n % kOctet == 0) {  // then every row starts on 16 bytes
""",
        """
    if (MUTATED(Int32Offset))
      target = d + static_cast<int>(static_cast<unsigned>(row) * n + column);
    if (n % kOctet == 0) {  // then every row starts on 16 bytes
""",
    ),
    Edit(
        "epilogue/tile_output.cuh",
        """
    if (output.channel_scale != nullptr || output.bias != nullptr) {
""",
        """
    if (MUTATED(ActivationFirst) && output.activation != Activation::kIdentity) {
      activate_all<4 * kMmaM * kMmaN>(output.activation, accumulators);
    }
    if (output.channel_scale != nullptr || output.bias != nullptr) {
""",
    ),
    Edit(
        "epilogue/tile_output.cuh",
        """
    if (output.activation != Activation::kIdentity) {
""",
        """
    if (output.activation != Activation::kIdentity && !MUTATED(ActivationFirst)) {
""",
    ),
    Edit(
        "epilogue/tile_output.cuh",
        """
      const float2 bias = pair_of(output.bias, 0.f, column + 8 * j);
""",
        """
      const bool ragged =
          MUTATED(BiasOfRaggedTile) && column / 8 * 8 + 8 * j + 8 > output.n;
      const float2 bias = pair_of(ragged ? nullptr : output.bias, 0.f, column + 8 * j);
""",
    ),
    Edit(
        "grid/block_reduce.cuh",
        """
      for (int other = 0; other < slices; ++other) {
""",
        """
      for (int other = MUTATED(ClusterRank) ? 1 : 0; other < slices; ++other) {
""",
    ),
    Edit(
        "grid/device_query_cuda.cpp",
        """
  DeviceInfo info;
""",
        """
  if (prepare_mutant() != 0) return DeviceInfo();
  DeviceInfo info;
""",
    ),
    Edit(
        "grid/launch.cuh",
        """
  config.stream = static_cast<cudaStream_t>(launch.stream);
""",
        """
  config.stream =
      MUTATED(DroppedStream) ? nullptr : static_cast<cudaStream_t>(launch.stream);
""",
    ),
    Edit(
        "grid/run_split_cuda.cpp",
        """
  if (!zero_flags) return Status();
""",
        """
  if (!zero_flags || MUTATED(UnzeroedFlags)) return Status();
""",
    ),
    Edit(
        "grid/split_partials.cuh",
        """
  for (int first = 0; first < slices; first += kBatch, source += kBatch * slice_stride) {
""",
        """
  if (MUTATED(DroppedPartial) && slices > 1) --slices;
  for (int first = 0; first < slices; first += kBatch, source += kBatch * slice_stride) {
""",
    ),
    Edit(
        "grid/tile_gemm.cuh",
        """
      for (int other = worker + 1; other < last; ++other) {
""",
        """
      for (int other = worker + 1; other < last - (MUTATED(MissingPartial) ? 1 : 0);
           ++other) {
""",
    ),
    Edit(
        "grid/work_split.h",
        """
    }
""",
        """
      if (MUTATED(DroppedSlice) && slices > 1 && slice == slices - 1) k_end = k_begin;
    }
""",
    ),
    Edit(
        "hopper/specialized_gemm.cuh",
        """
      for (int other = worker + 1; other < last; ++other) {
""",
        """
      for (int other = worker + 1; other < last - (MUTATED(MissingPartial) ? 1 : 0);
           ++other) {
""",
    ),
    Edit(
        "mainloop/multistage_mainloop.cuh",
        """
              reinterpret_cast<const cutlass::Array<Element, 4>&>(pairs[j]), accumulator);
      }
""",
        """
              reinterpret_cast<const cutlass::Array<Element, 4>&>(pairs[j]), accumulator);
        if (MUTATED(Float16Sums)) {
          for (float& sum : accumulator) sum = float(cutlass::half_t(sum));
        }
      }
""",
    ),
    Edit(
        "mainloop/scale_operand.cuh",
        """
  __device__ int operator()(int part) const { return min(parts_per_group.div(part), groups - 1); }
""",
        """
  __device__ int operator()(int part) const {
    return min(parts_per_group.div(part) + (MUTATED(GroupOffByOne) ? 1 : 0), groups - 1);
  }
""",
    ),
    Edit(
        "skinny/kernel.cuh",
        """
        const float zero = Config::kZeros ? scales_.zero(j, part, h) : 0.f;
""",
        """
        const bool exists = Config::kZeros && (more || !MUTATED(MissingLastZero));
        const float zero = exists ? scales_.zero(j, part, h) : 0.f;
""",
    ),
    Edit(
        "skinny/reduction.cuh",
        """
        for (int i = 0; i < others; ++i) add(total, storage_.received[i][at]);
""",
        """
        for (int i = MUTATED(SkinnyBlock) ? 1 : 0; i < others; ++i)
          add(total, storage_.received[i][at]);
""",
    ),
    Edit(
        "skinny/scale_stage.cuh",
        """
    // Parts of the last iteration past the end of K take any group that is finite.
""",
        """
    if (MUTATED(SkinnyGroup)) group = max(group - 1, 0);
    // Parts of the last iteration past the end of K take any group that is finite.
""",
    ),
    Edit(
        "skinny/scales.cuh",
        """
    if constexpr (Config::kOwnScales || kGroupSteps > 1) row = min(row, p_.groups - 1);
""",
        """
    if (MUTATED(SkinnyGroup)) row = max(row - 1, 0);
    if constexpr (Config::kOwnScales || kGroupSteps > 1) row = min(row, p_.groups - 1);
""",
    ),
    Edit(
        "transform/copy_padded.cuh",
        """
      if (pre_scale != nullptr) value = Element(float(value) * float(pre_scale[column]));
""",
        """
      const bool ignored = MUTATED(PreScaleOfRows) && src_stride != columns;
      if (pre_scale != nullptr && !ignored)
        value = Element(float(value) * float(pre_scale[column]));
""",
    ),
    Edit(
        "transform/dequantize.cuh",
        """
    const float subtrahend = p.zero_mode == ZeroMode::kSub ? zero : 0.f;
""",
        """
    const bool dropped = MUTATED(DequantizedZero) && p.k % 8 != 0;
    const float subtrahend = p.zero_mode == ZeroMode::kSub && !dropped ? zero : 0.f;
""",
    ),
    Edit(
        "wgmma/mainloop.cuh",
        """
          if (kLoadsByGroup && next != 0) {
""",
        """
          if (kLoadsByGroup && next != 0 && !MUTATED(WordsOfGroup)) {
""",
    ),
    Edit(
        "wgmma/staged_scales.cuh",
        """
    return steps_per_group.div(tile * StagedRows::kSteps + row * rows.steps_per_row);
""",
        """
    const int group = steps_per_group.div(tile * StagedRows::kSteps + row * rows.steps_per_row);
    return MUTATED(WgmmaGroup) ? max(group - 1, 0) : group;
""",
    ),
)
