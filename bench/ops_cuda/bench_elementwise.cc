// The memory-bound ops at the shape of Qwen3-8B.
#include <algorithm>

#include "measure.h"

namespace zipage::bench {

void bench_elementwise(Bench& bench) {
  constexpr int32_t kHidden = 4096, kWide = 12288, kQHeads = 32, kKvHeads = 8, kDim = 128,
                    kBlock = 256;
  const Buffer weight = bench.upload(std::vector<float>(kHidden, 1.0f));
  for (const int32_t tokens : {1, 157, 2048, 8192}) {
    const auto t = static_cast<size_t>(tokens);
    const double rows = static_cast<double>(tokens);
    // Copies, so that together they exceed the L2.
    const int copies = tokens >= 8192 ? 2 : tokens >= 2048 ? 4 : tokens > 1 ? 20 : 64;
    const int ops = 2 * copies;
    std::vector<Buffer> x, residual, wide, qkv;
    for (int i = 0; i < copies; ++i) {
      x.push_back(bench.random(t * kHidden));
      residual.push_back(bench.random(t * kHidden, 99));
      wide.push_back(bench.random(t * 2 * kWide));
      qkv.push_back(bench.random(t * (kQHeads + 2 * kKvHeads) * kDim));
    }
    const auto at = [&](const std::vector<Buffer>& buffers, int i) {
      return buffers[static_cast<size_t>(i % copies)].data();
    };
    char name[96];
    const auto report = [&](const char* op, double us, double bytes) {
      std::snprintf(name, sizeof name, "%s T %d", op, tokens);
      bench.print_bytes(name, us, bytes);
    };
    report("rms_norm + residual",
           bench.time_us(ops,
                         [&](int i) {
                           bench.backend->rms_norm(
                               {DType::kBF16, at(x, i), at(residual, i), weight.as<float>(), 1e-6f,
                                tokens, kHidden, at(x, i)},
                               *bench.stream);
                         }),
           rows * kHidden * 2 * 4);
    report("silu_mul",
           bench.time_us(ops,
                         [&](int i) {
                           bench.backend->silu_mul(
                               {DType::kBF16, at(wide, i), tokens, kWide, at(wide, i + 1)},
                               *bench.stream);
                         }),
           rows * kWide * 2 * 3);
    std::vector<int32_t> ids, positions, slots, query_slots;
    for (int32_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<int32_t>((static_cast<int64_t>(i) * 7919) % tokens));
      positions.push_back(i);
      slots.push_back(i);
      query_slots.push_back(i < tokens - 128 ? -1 : i % 128);  // a chunk keeps its last few
    }
    const Buffer ids_device = bench.upload(ids), positions_device = bench.upload(positions),
                 slots_device = bench.upload(slots), query_slots_device = bench.upload(query_slots);
    report("gather_rows",
           bench.time_us(ops,
                         [&](int i) {
                           bench.backend->gather_rows(
                               {DType::kBF16, at(x, i), ids_device.as<int32_t>(), tokens, kHidden,
                                at(residual, i)},
                               *bench.stream);
                         }),
           rows * kHidden * 2 * 2);
    const size_t blocks = (t + kBlock - 1) / kBlock;
    Buffer k = bench.zeros(blocks * kBlock * kKvHeads * kDim * 2), v = bench.zeros(k.bytes());
    Buffer queries = bench.zeros(128 * size_t{kQHeads} * kDim * 2);
    const Buffer rope = bench.upload(std::vector<float>(t * kDim, 0.5f));
    LayerKvView layer;
    layer.k = k.data();
    layer.v = v.data();
    layer.queries = queries.data();
    PagedKvView kv;
    kv.dtype = kv.query_dtype = DType::kBF16;
    kv.num_blocks = static_cast<int32_t>(blocks);
    kv.block_size = kBlock;
    kv.num_kv_heads = kKvHeads;
    kv.num_q_heads = kQHeads;
    kv.head_dim = kDim;
    kv.window_size = 16;
    kv.layers = &layer;
    StepBatch batch;
    batch.num_tokens = tokens;
    batch.positions = positions_device.as<int32_t>();
    batch.kv_slots = slots_device.as<int32_t>();
    batch.query_slots = query_slots_device.as<int32_t>();
    report("attention_prepare",
           bench.time_us(ops,
                         [&](int i) {
                           AttentionPrepareArgs args{};
                           args.dtype = DType::kBF16;
                           args.qkv = at(qkv, i);
                           args.q_norm = args.k_norm = weight.as<float>();
                           args.norm_eps = 1e-6f;
                           args.rope_cos_sin = rope.as<float>();
                           args.rotary_dim = kDim;
                           args.batch = &batch;
                           args.kv = &kv;
                           args.q_out = at(x, i);
                           bench.backend->attention_prepare(args, *bench.stream);
                         }),
           kDim * 2.0 * (rows * 2 * (kQHeads + 2 * kKvHeads) + std::min(tokens, 128) * kQHeads));
  }
}

}  // namespace zipage::bench
