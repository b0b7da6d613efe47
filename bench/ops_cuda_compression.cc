// Times the compression ops on the GPU at the shape of Qwen3-8B (36 layers, 8 KV heads, 32 query
// heads, d 128, bf16, blocks of 256, 2,048 slots of which 1,792 are kept) and prints microseconds,
// bytes moved a second and the share of the measured copy bandwidth. usage: ops_cuda_compression
// [copy bandwidth in TB/s; measured when absent]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/kernels/compression/compression.h"

namespace zipage {
namespace {

constexpr int kLayers = 36, kHeads = 8, kGroup = 4, kHeadDim = 128, kBlock = 256, kWindow = 16;
constexpr int kLength = 2048, kKeep = 1792, kMaxPosition = 40960;
constexpr int kMaxJobs = 16;
constexpr size_t kLayerBytes = size_t{kMaxJobs} * kLength * kHeads * kHeadDim * 2;

template <typename T>
class Array {
 public:
  explicit Array(size_t count) {
    ZIPAGE_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  explicit Array(const std::vector<T>& host) : Array(host.size()) {
    ZIPAGE_CUDA_CHECK(
        cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { cudaFree(data_); }
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

// Median of `repeats` replays of what `body` enqueues, as a graph, in microseconds.
double time_us(cudaStream_t stream, const std::function<void()>& body, int repeats = 15) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ZIPAGE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  body();
  ZIPAGE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  ZIPAGE_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin = nullptr, end = nullptr;
  ZIPAGE_CUDA_CHECK(cudaEventCreate(&begin));
  ZIPAGE_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < repeats + 3; ++i) {
    ZIPAGE_CUDA_CHECK(cudaEventRecord(begin, stream));
    ZIPAGE_CUDA_CHECK(cudaGraphLaunch(exec, stream));
    ZIPAGE_CUDA_CHECK(cudaEventRecord(end, stream));
    ZIPAGE_CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    ZIPAGE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) times.push_back(ms * 1e3);
  }
  std::sort(times.begin(), times.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return times[times.size() / 2];
}

struct Bench {
  CudaContext context;
  cudaStream_t stream = nullptr;
  double copy_tb_s = 0;
  PagedKvView kv;
  std::vector<LayerKvView> layers;
  std::vector<std::unique_ptr<Array<uint16_t>>> pages;
  std::vector<std::unique_ptr<Array<float>>> scores;
  std::vector<std::unique_ptr<Array<int32_t>>> tables;
  std::unique_ptr<Array<float>> cos_sin, scratch[5], workspace;
  std::unique_ptr<Array<int32_t>> kept;
  std::unique_ptr<Array<uint64_t>> seeds;
  std::mt19937_64 random{7};

  const int32_t* table(std::vector<int32_t> values) {
    tables.push_back(std::make_unique<Array<int32_t>>(values));
    return tables.back()->get();
  }
  const int32_t* table_of(int count, int value) {
    return table(std::vector<int32_t>(static_cast<size_t>(count), value));
  }

  explicit Bench(double copy) : copy_tb_s(copy) {
    cudaDeviceProp properties{};
    ZIPAGE_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    context.num_sms = properties.multiProcessorCount;
    context.compute_capability = properties.major * 10 + properties.minor;
    context.max_shared_bytes = properties.sharedMemPerBlockOptin;
    if (context.is_hopper()) {
      cudaDriverEntryPointQueryResult found{};
      ZIPAGE_CUDA_CHECK(cudaGetDriverEntryPointByVersion(
          "cuTensorMapEncodeTiled", &context.encode_tensor_map, 12000, cudaEnableDefault, &found));
    }
    ZIPAGE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (copy_tb_s <= 0) {
      constexpr size_t kBytes = size_t{4} << 30;
      Array<char> from(kBytes), to(kBytes);
      // Not as a graph: a copy node may take another path than the runtime's copy.
      cudaEvent_t begin = nullptr, end = nullptr;
      ZIPAGE_CUDA_CHECK(cudaEventCreate(&begin));
      ZIPAGE_CUDA_CHECK(cudaEventCreate(&end));
      double us = 1e30;
      for (int i = 0; i < 8; ++i) {
        ZIPAGE_CUDA_CHECK(cudaEventRecord(begin, stream));
        ZIPAGE_CUDA_CHECK(
            cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, stream));
        ZIPAGE_CUDA_CHECK(cudaEventRecord(end, stream));
        ZIPAGE_CUDA_CHECK(cudaEventSynchronize(end));
        float ms = 0;
        ZIPAGE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        us = std::min(us, ms * 1e3);
      }
      copy_tb_s = 2.0 * kBytes / us * 1e-6;
    }
    std::printf("%s, copy %.2f TB/s (read + write)\n", properties.name, copy_tb_s);
    kv.dtype = kv.query_dtype = DType::kBF16;
    kv.num_layers = kLayers;
    kv.num_blocks = kMaxJobs * kLength / kBlock;
    kv.block_size = kBlock;
    kv.num_kv_heads = kHeads;
    kv.num_q_heads = kHeads * kGroup;
    kv.head_dim = kHeadDim;
    kv.num_slots = kMaxJobs;
    kv.window_size = kWindow;
    kv.score_capacity = kLength;
    std::normal_distribution<float> normal;
    std::vector<uint16_t> values(kLayerBytes / 2);
    std::vector<float> sample(1 << 20);
    for (float& x : sample) x = normal(random);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = f32_to_bf16(sample[(i * 2654435761u >> 7) % sample.size()]);
    std::vector<float> f(size_t{kMaxJobs} * kHeads * kLength);
    for (float& x : f) x = std::abs(normal(random));
    std::vector<int32_t> positions(f.size());
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<int32_t>(i % kLength * 5);
    for (int l = 0; l < kLayers; ++l) {
      LayerKvView view;
      for (std::byte** field : {&view.k, &view.v}) {
        pages.push_back(std::make_unique<Array<uint16_t>>(values));
        *field = reinterpret_cast<std::byte*>(pages.back()->get());
      }
      const std::vector<uint16_t> queries(
          values.begin(), values.begin() + kMaxJobs * kWindow * kHeads * kGroup * kHeadDim);
      pages.push_back(std::make_unique<Array<uint16_t>>(queries));
      view.queries = reinterpret_cast<std::byte*>(pages.back()->get());
      scores.push_back(std::make_unique<Array<float>>(f));
      view.scores = scores.back()->get();
      tables.push_back(std::make_unique<Array<int32_t>>(positions));
      view.positions = tables.back()->get();
      layers.push_back(view);
    }
    kv.layers = layers.data();
    std::vector<float> angles(size_t{kMaxPosition} * kHeadDim);
    for (size_t i = 0; i < angles.size(); ++i)
      angles[i] = i % kHeadDim < kHeadDim / 2 ? 0.8f : 0.6f;
    cos_sin = std::make_unique<Array<float>>(angles);
    const size_t rows = size_t{kMaxJobs} * kLayers * kHeads;
    for (auto& s : scratch) s = std::make_unique<Array<float>>(rows * kLength);
    kept = std::make_unique<Array<int32_t>>(rows * kKeep);
    Backend::Limits limits{};
    limits.max_kv_len = limits.score_capacity = kLength;
    limits.num_q_heads = kHeads * kGroup;
    limits.num_kv_heads = kHeads;
    limits.head_dim = kHeadDim;
    limits.window_size = kWindow;
    workspace =
        std::make_unique<Array<float>>(compression_kernel_workspace_bytes(limits, {}, context) / 4);
  }

  CompressionBatch batch_of(int jobs, int length) {
    CompressionBatch batch;
    batch.num_jobs = jobs;
    batch.max_length = length;
    batch.max_keep = kKeep;
    std::vector<int32_t> slots, blocks;
    for (int j = 0; j < jobs; ++j) slots.push_back(j);
    for (int i = 0; i < kMaxJobs * kLength / kBlock; ++i) blocks.push_back(i);
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.resize(static_cast<size_t>(jobs * kLength / kBlock));
    batch.slots = table(slots);
    batch.lengths = table_of(jobs, length);
    batch.keeps = table_of(jobs, kKeep);
    batch.histories = table_of(jobs, kKeep);
    batch.position_offsets = table_of(jobs, 9000);
    batch.prompt_lengths = table_of(jobs, 100);
    batch.block_tables = batch.target_tables = table(blocks);
    batch.block_table_stride = kLength / kBlock;
    return batch;
  }

  void report(const char* name, double us, double bytes) const {
    std::printf("  %-44s %9.1f us %8.0f GB/s %5.1f %%\n", name, us, bytes / us * 1e-3,
                bytes / us * 1e-6 / copy_tb_s * 100);
    std::fflush(stdout);
  }

  // Runs `ops` for all layers, `stride` at a time.
  double strides(int stride, const std::function<void(int, int)>& ops) {
    return time_us(stream, [&] {
      for (int l = 0; l < kLayers; l += stride) ops(l, std::min(stride, kLayers - l));
    });
  }

  void compressions(int jobs, int stride) {
    const CompressionBatch batch = batch_of(jobs, kLength);
    std::printf("%d job(s), %d layers a launch\n", jobs, stride);
    const auto set = [&](auto* args, int layer, int count) {
      args->batch = &batch;
      args->kv = &kv;
      args->layer_begin = layer;
      args->num_layers = count;
      args->capacity = kLength;
    };
    float* s = scratch[0]->get();
    float* r = scratch[1]->get();
    float* pooled = scratch[2]->get();
    const double units = static_cast<double>(jobs) * kLayers * kHeads;
    const double k_bytes = units * kLength * kHeadDim * 2, row_bytes = units * kLength * 4;
    const auto normalized = [&](int l, int c) {
      NormalizedHistoryArgs a{};
      set(&a, l, c);
      a.score = s;
      launch_normalized_history(a, context, stream);
    };
    const auto center = [&](int l, int c) {
      CenterRedundancyArgs a{};
      set(&a, l, c);
      a.temperature = 0.4f;
      a.rope_cos_sin = cos_sin->get();
      a.rotary_dim = kHeadDim;
      a.out = r;
      a.workspace = workspace->get();
      launch_center_redundancy(a, context, stream);
    };
    const auto attention = [&](int l, int c) {
      AttentionScoreArgs a{};
      set(&a, l, c);
      a.scale = 0.0884f;
      a.score = s;
      a.workspace = workspace->get();
      launch_attention_score(a, context, stream);
    };
    const auto global = [&](int l, int c) {
      GlobalScoreArgs a{};
      set(&a, l, c);
      a.decay = 0.8f;
      a.score = s;
      launch_global_score(a, context, stream);
    };
    const auto pool = [&](int l, int c) {
      MaxPoolArgs a{};
      set(&a, l, c);
      a.width = 5;
      a.score = s;
      a.out = pooled;
      launch_max_pool(a, context, stream);
    };
    const auto redundancy = [&](Redundancy mode, bool derotate) {
      return [&, mode, derotate](int l, int c) {
        RedundancyArgs a{};
        set(&a, l, c);
        a.mode = mode;
        a.similarity_threshold = 0.5f;
        a.temperature = 0.4f;
        a.derotate = derotate;
        a.rope_cos_sin = cos_sin->get();
        a.rotary_dim = kHeadDim;
        a.out = r;
        a.workspace = workspace->get();
        launch_redundancy(a, context, stream);
      };
    };
    const auto combined = [&](int l, int c) {
      CombineArgs a{};
      set(&a, l, c);
      a.weight = 0.2f;
      a.attention = s;
      a.redundancy = r;
      a.score = r;
      launch_combine(a, context, stream);
    };
    const auto protect = [&](int l, int c) {
      ProtectArgs a{};
      set(&a, l, c);
      a.newest = 64;
      a.score = r;
      launch_protect(a, context, stream);
    };
    const auto select = [&](int l, int c) {
      TopKArgs a{};
      set(&a, l, c);
      a.score = r;
      a.kept = kept->get();
      a.kept_stride = kKeep;
      launch_top_k(a, context, stream);
    };
    const auto compact = [&](const float* history) {
      return [&, history](int l, int c) {
        CompactArgs a{};
        set(&a, l, c);
        a.history = history;
        a.kept = kept->get();
        a.kept_stride = kKeep;
        launch_compact(a, context, stream);
      };
    };
    const double moved = units * kKeep * kHeadDim * 2 * 2 * 2;
    report("attention_score", strides(stride, attention), k_bytes);
    report("redundancy lightning", strides(stride, redundancy(Redundancy::kLightning, false)),
           k_bytes);
    if (jobs == 1) {
      report("redundancy flash", strides(stride, redundancy(Redundancy::kFlash, false)), k_bytes);
      report("redundancy lightning, derotate",
             strides(stride, redundancy(Redundancy::kLightning, true)), k_bytes);
    }
    report("center_redundancy", strides(stride, center), k_bytes);
    report("normalized_history", strides(stride, normalized), 2 * row_bytes);
    report("global_score", strides(stride, global), 3 * row_bytes);
    report("max_pool", strides(stride, pool), 2 * row_bytes);
    report("combine", strides(stride, combined), 3 * row_bytes);
    report("protect", strides(stride, protect), row_bytes / 32);
    report("top_k", strides(stride, select), row_bytes + units * kKeep * 4);
    report("compact, in place", strides(stride, compact(nullptr)), moved);
    report("policy peak, whole",
           strides(stride,
                   [&](int l, int c) {
                     normalized(l, c), center(l, c), combined(l, c), protect(l, c), select(l, c),
                         compact(nullptr)(l, c);
                   }),
           k_bytes + moved);
    const auto lightning = redundancy(Redundancy::kLightning, false);
    report("policy paper (lightning), whole",
           strides(stride,
                   [&](int l, int c) {
                     attention(l, c), global(l, c), pool(l, c), lightning(l, c), combined(l, c),
                         protect(l, c), select(l, c);
                     compact(s)(l, c);
                   }),
           k_bytes + moved);
  }

  // All layers in one call, as a step of the engine does.
  void peaks(const char* what, const std::vector<int32_t>& lengths) {
    const auto updates = static_cast<int32_t>(lengths.size());
    const CompressionBatch jobs = batch_of(updates, kLength);
    std::vector<int32_t> previous;
    double entries = 0;
    PeakUpdateBatch batch;
    for (const int32_t length : lengths) {
      previous.push_back(length - kWindow);
      entries += length;
      batch.max_length = std::max(batch.max_length, length);
    }
    batch.num_updates = updates;
    batch.slots = jobs.slots;
    batch.lengths = table(lengths);
    batch.previous_lengths = table(previous);
    batch.block_tables = jobs.block_tables;
    batch.block_table_stride = jobs.block_table_stride;
    PeakUpdateArgs a{};
    a.batch = &batch;
    a.kv = &kv;
    a.num_layers = kLayers;
    a.scale = 0.0884f;
    a.half_life = 128;
    a.workspace = workspace->get();
    const double us = time_us(stream, [&] { launch_peak_update(a, context, stream); });
    const std::string name = std::string("peak_update, all layers, ") + what;
    report(name.c_str(), us, entries * kLayers * kHeads * kHeadDim * 2);
  }
};

}  // namespace
}  // namespace zipage

int main(int argc, char** argv) {
  try {
    zipage::Bench bench(argc > 1 ? std::atof(argv[1]) : 0);
    bench.peaks("1 x 2000", {2000});
    bench.peaks("10 x 2000", std::vector<int32_t>(10, 2000));
    // A sixteenth of 170 running requests of the trace; mean 1,720.
    bench.peaks("11 of 448..2048",
                {2048, 1808, 1936, 1840, 2000, 448, 1872, 2032, 1904, 1968, 1056});
    for (const int jobs : {1, 4}) {
      for (const int stride : {8, 36}) bench.compressions(jobs, stride);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
