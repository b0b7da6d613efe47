// Times the sampler on the GPU with Qwen3's vocabulary and prints microseconds, bytes a second
// (each logit read once) and the share of 4.27 TB/s, the copy bandwidth of an H200.
#include <algorithm>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <random>
#include <vector>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/kernels/sample/sample.h"

namespace zipage {
namespace {

constexpr int kVocab = 151936, kMaxRows = 256;

template <typename T>
T* on_device(const std::vector<T>& host) {
  T* data = nullptr;
  ZIPAGE_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), host.size() * sizeof(T)));
  ZIPAGE_CUDA_CHECK(cudaMemcpy(data, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}

void bench() {
  cudaDeviceProp properties{};
  ZIPAGE_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  CudaContext context;
  context.num_sms = properties.multiProcessorCount;
  context.max_shared_bytes = properties.sharedMemPerBlockOptin;
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> logits(size_t{kMaxRows} * kVocab), sample(1 << 20);
  for (float& x : sample) x = 2.5f * normal(random);
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] = sample[(i * 2654435761u >> 9) % sample.size()];
  float* device_logits[2] = {on_device(logits), on_device(logits)};
  const std::vector<uint32_t> zeros(size_t{kMaxRows} * kVocab);
  uint32_t* counts = on_device(zeros);
  int32_t* tokens = on_device(std::vector<int32_t>(kMaxRows));
  float* logprobs = on_device(std::vector<float>(kMaxRows * 21));
  int32_t* ids = on_device(std::vector<int32_t>(kMaxRows * 21));
  const auto run = [&](const char* name, SampleRow row, bool wants_logprobs) {
    for (const int count : {1, 157, 256}) {
      std::vector<SampleRow> rows(static_cast<size_t>(count), row);
      for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].seed = random();
        if (row.count_slot >= 0) rows[i].count_slot = static_cast<int32_t>(i);
      }
      SampleArgs args{};
      SampleRow* device_rows = on_device(rows);
      args.num_rows = count;
      args.vocab = kVocab;
      args.rows = device_rows;
      args.token_counts = counts;
      args.max_logprobs = 20;
      args.tokens = tokens;
      if (wants_logprobs)
        args.token_logprobs = args.top_logprobs = logprobs, args.token_ranks = args.top_ids = ids;
      cudaEvent_t begin = nullptr, end = nullptr;
      ZIPAGE_CUDA_CHECK(cudaEventCreate(&begin));
      ZIPAGE_CUDA_CHECK(cudaEventCreate(&end));
      std::vector<float> times;
      for (int i = 0; i < 14; ++i) {
        args.logits = device_logits[i % 2];
        ZIPAGE_CUDA_CHECK(cudaEventRecord(begin));
        launch_sample(args, context, nullptr);
        ZIPAGE_CUDA_CHECK(cudaEventRecord(end));
        ZIPAGE_CUDA_CHECK(cudaEventSynchronize(end));
        float ms = 0;
        ZIPAGE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 4) times.push_back(ms * 1e3f);
      }
      std::sort(times.begin(), times.end());
      const double us = times[times.size() / 2], bytes = 4.0 * count * kVocab;
      std::printf("  %-28s %4d rows %9.1f us %8.0f GB/s %5.1f %%\n", name, count, us,
                  bytes / us * 1e-3, bytes / us * 1e-6 / 4.27 * 100);
      std::fflush(stdout);
      cudaFree(device_rows);
    }
  };
  std::printf("%s, vocabulary %d\n", properties.name, kVocab);
  SampleRow row;
  run("greedy", row, false);
  row.temperature = 0.6f;
  run("temperature", row, false);
  row.top_p = 0.95f;
  run("top-p 0.95", row, false);
  row.top_k = 20;
  run("top-k 20, top-p 0.95", row, false);
  row.count_slot = 0;
  row.repetition_penalty = 1.1f;
  run("with penalties", row, false);
  row.count_slot = -1;
  row.top_k = 0;
  row.top_p = 1;
  row.typical_p = 0.9f;
  run("typical-p 0.9", row, false);
  SampleRow greedy;
  greedy.num_logprobs = 20;
  run("greedy, 20 log-probabilities", greedy, true);
}

}  // namespace
}  // namespace zipage

int main() {
  try {
    zipage::bench();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
