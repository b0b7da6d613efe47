// The sampler: one row a thread at a time, in the order of operations of backend/ops/sampling.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/ops.h"
#include "backend/cpu/runtime/kernel_set.h"
#include "backend/cpu/runtime/memory.h"
#include "base/check.h"
#include "sampling/philox.h"

namespace zipage::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr uint32_t kInPrompt = 1u << 31;

// Tokens are ordered by key (falling), then id (rising). To find where a mass is reached without
// sorting the vocabulary, tokens are put into bins by their distance from the top key; only the bin
// where it happens is sorted. Weights below e^-87.3 are 0, so that 88 natural units of distance
// hold all that matters; the last bin takes the rest.
constexpr int32_t kNumBins = 4096;
constexpr float kBinsPerUnit = static_cast<float>(kNumBins) / 88.0f;

struct RowScratch {
  float* keys;     // [vocab]
  float* weights;  // [vocab]
  int32_t* ids;    // [vocab]
  double* bins;    // [kNumBins]
};

size_t scratch_bytes(int64_t vocab) {
  const size_t bytes = static_cast<size_t>(vocab) * (2 * sizeof(float) + sizeof(int32_t)) +
                       kNumBins * sizeof(double);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

RowScratch scratch_at(std::byte* base, int64_t vocab) {
  RowScratch scratch;
  scratch.bins = reinterpret_cast<double*>(base);
  scratch.keys = reinterpret_cast<float*>(scratch.bins + kNumBins);
  scratch.weights = scratch.keys + vocab;
  scratch.ids = reinterpret_cast<int32_t*>(scratch.weights + vocab);
  return scratch;
}

// The last token of a prefix of the order.
struct Cut {
  float key;
  int32_t id;
};

// A copy of the order's rules for one row.
struct Order {
  const float* keys;
  int64_t count;
  float top;    // no key is larger
  float scale;  // of the distance

  int32_t bin_of(int64_t id) const {
    const float distance = (top - keys[id]) * scale * kBinsPerUnit;
    return distance < static_cast<float>(kNumBins - 1) ? static_cast<int32_t>(distance)
                                                       : kNumBins - 1;
  }
  bool before(int32_t a, int32_t b) const {
    return keys[a] > keys[b] || (keys[a] == keys[b] && a < b);
  }
};

// The shortest prefix of the order whose mass is at least `target`; all tokens when rounding keeps
// it from getting there. mass(id) is 0 for tokens that no longer take part.
template <typename Mass>
Cut find_cut(const Order& order, double target, const RowScratch& scratch, Mass mass) {
  std::fill(scratch.bins, scratch.bins + kNumBins, 0.0);
  for (int64_t id = 0; id < order.count; ++id) {
    const double m = mass(id);
    if (m > 0) scratch.bins[order.bin_of(id)] += m;
  }
  double before = 0;
  int32_t bin = 0;
  while (bin < kNumBins && before + scratch.bins[bin] < target) before += scratch.bins[bin++];
  if (bin == kNumBins) return {kNever, static_cast<int32_t>(order.count)};
  int32_t* end = scratch.ids;
  for (int64_t id = 0; id < order.count; ++id) {
    if (mass(id) > 0 && order.bin_of(id) == bin) *end++ = static_cast<int32_t>(id);
  }
  std::sort(scratch.ids, end, [&](int32_t a, int32_t b) { return order.before(a, b); });
  int32_t* last = scratch.ids;
  while (last + 1 < end && before + mass(*last) < target) before += mass(*last++);
  return {order.keys[*last], *last};
}

class RowSampler {
 public:
  RowSampler(const SampleArgs& args,
             int32_t row,
             const SampleKernels& kernels,
             const RowScratch& scratch)
      : args_(args),
        row_(row),
        choice_(args.rows[row]),
        vocab_(args.vocab),
        logits_(const_cast<float*>(args.logits) + static_cast<int64_t>(row) * args.vocab),
        kernels_(kernels),
        scratch_(scratch) {}

  void run() {
    const bool logprobs = choice_.num_logprobs >= 0 &&
                          (args_.token_logprobs != nullptr || args_.token_ranks != nullptr ||
                           args_.top_ids != nullptr || args_.top_logprobs != nullptr);
    if (choice_.given_token >= 0) {
      ZIPAGE_CHECK_LT(int64_t{choice_.given_token}, vocab_);
      kernels_.make_finite(logits_, vocab_);
      args_.tokens[row_] = choice_.given_token;
      if (logprobs) write_logprobs(choice_.given_token);
      return;
    }
    const bool changed =
        choice_.bias_count > 0 || choice_.count_slot >= 0 || choice_.mask_slot >= 0;
    int32_t token;
    if (choice_.temperature <= 0 && !changed) {
      token = kernels_.argmax(logits_, vocab_);
      if (logprobs) kernels_.make_finite(logits_, vocab_);
    } else {
      kernels_.make_finite(logits_, vocab_);
      std::memcpy(scratch_.keys, logits_, static_cast<size_t>(vocab_) * sizeof(float));
      if (changed) change_keys();
      token = choice_.temperature <= 0 ? kernels_.argmax(scratch_.keys, vocab_) : draw();
    }
    args_.tokens[row_] = token;
    if (choice_.count_slot >= 0 && token >= 0)
      ++args_.token_counts[choice_.count_slot * vocab_ + token];
    if (logprobs) write_logprobs(token);
  }

 private:
  // Allowed tokens, bias, penalties. Finite inputs may leave the range of f32: the end clamps them
  // again.
  void change_keys() {
    float* keys = scratch_.keys;
    if (choice_.mask_slot >= 0) {
      const int64_t words = (vocab_ + 31) / 32;
      const uint32_t* mask = args_.allowed_masks + choice_.mask_slot * words;
      for (int64_t id = 0; id < vocab_; ++id) {
        if ((mask[id / 32] >> (id % 32) & 1u) == 0) keys[id] = kNever;
      }
    }
    for (int32_t i = choice_.bias_begin; i < choice_.bias_begin + choice_.bias_count; ++i) {
      ZIPAGE_CHECK_LT(static_cast<uint32_t>(args_.bias_ids[i]), static_cast<uint32_t>(vocab_));
      keys[args_.bias_ids[i]] += args_.bias_values[i];
    }
    if (choice_.count_slot >= 0) {
      const uint32_t* counts = args_.token_counts + choice_.count_slot * vocab_;
      for (int64_t id = 0; id < vocab_; ++id) {
        if (counts[id] == 0) continue;
        const uint32_t times = counts[id] & ~kInPrompt;
        float key = keys[id];
        key = key > 0 ? key / choice_.repetition_penalty : key * choice_.repetition_penalty;
        if (times > 0) {
          key -= choice_.frequency_penalty * static_cast<float>(times);
          key -= choice_.presence_penalty;
        }
        keys[id] = key;
      }
    }
    kernels_.make_finite(keys, vocab_);
  }

  int32_t draw() {
    float* keys = scratch_.keys;
    float* weights = scratch_.weights;
    const float top = kernels_.max(keys, vocab_);
    if (top == kNever) return -1;
    const float scale = std::min(1.0f / choice_.temperature, 1e30f);
    // min-p: p < min_p * p_max, and the weight of the most likely token is 1.
    double total = kernels_.softmax_weights(keys, vocab_, top, scale, choice_.min_p, weights);
    const Order order{keys, vocab_, top, scale};
    if (choice_.top_k > 0 && choice_.top_k < vocab_) {
      const Cut cut = find_cut(order, choice_.top_k, scratch_,
                               [&](int64_t id) { return weights[id] > 0 ? 1.0 : 0.0; });
      for (int64_t id = 0; id < vocab_; ++id) {
        if (keys[id] < cut.key) weights[id] = 0;
      }
      total = kernels_.sum(weights, vocab_);
    }
    if (choice_.top_p < 1) {
      const Cut cut = find_cut(order, choice_.top_p * total, scratch_,
                               [&](int64_t id) { return double{weights[id]}; });
      for (int64_t id = 0; id < vocab_; ++id) {
        if (keys[id] < cut.key || (keys[id] == cut.key && id > cut.id)) weights[id] = 0;
      }
      total = kernels_.sum(weights, vocab_);
    }
    if (choice_.typical_p < 1) {
      keep_typical(top, scale, total);
      total = kernels_.sum(weights, vocab_);
    }
    return pick(total);
  }

  // Tokens whose information -log p is nearest the entropy H, until their mass is typical_p; ties
  // stay.
  void keep_typical(float top, float scale, double total) {
    float* keys = scratch_.keys;
    float* weights = scratch_.weights;
    const double log_total = std::log(total);
    double entropy = 0;
    for (int64_t id = 0; id < vocab_; ++id) {
      if (weights[id] > 0)
        entropy +=
            weights[id] / total * (static_cast<double>((top - keys[id]) * scale) + log_total);
    }
    const auto offset = static_cast<float>(log_total - entropy);
    for (int64_t id = 0; id < vocab_; ++id) {
      keys[id] = weights[id] > 0 ? -std::abs((top - keys[id]) * scale + offset) : kNever;
    }
    const Order order{keys, vocab_, 0.0f, 1.0f};
    const Cut cut = find_cut(order, choice_.typical_p * total, scratch_,
                             [&](int64_t id) { return double{weights[id]}; });
    for (int64_t id = 0; id < vocab_; ++id) {
      if (keys[id] < cut.key) weights[id] = 0;
    }
  }

  // The lowest id at which the running sum of weights passes u * total.
  int32_t pick(double total) const {
    const float* weights = scratch_.weights;
    const double target = philox_uniform(choice_.seed, choice_.step) * total;
    double sum = 0;
    int64_t last = vocab_ - 1;
    for (int64_t begin = 0; begin < vocab_; begin += kSampleRun) {
      const int64_t end = std::min(begin + kSampleRun, vocab_);
      const double run = kernels_.sum(weights + begin, end - begin);
      if (sum + run <= target) {
        sum += run;
        continue;
      }
      for (int64_t id = begin; id < end; ++id) {
        sum += weights[id];
        if (weights[id] > 0 && sum > target) return static_cast<int32_t>(id);
      }
      last = end - 1;  // the sum of lanes was rounded to more than the running one: the target lies
                       // at the run's end
      break;
    }
    while (last > 0 && weights[last] == 0) --last;
    return static_cast<int32_t>(last);
  }

  // Of the raw logits: log p = x - top - log(sum of e^(x - top)).
  void write_logprobs(int32_t token) {
    const float top = kernels_.max(logits_, vocab_);
    const bool nothing = top == kNever;
    const double log_sum =
        nothing ? 0 : std::log(kernels_.softmax_weights(logits_, vocab_, top, 1.0f, 0.0f, nullptr));
    const auto logprob = [&](int32_t id) {
      return nothing ? kNever
                     : static_cast<float>(static_cast<double>(logits_[id]) - top - log_sum);
    };
    if (args_.token_logprobs != nullptr)
      args_.token_logprobs[row_] = token >= 0 ? logprob(token) : kNever;
    if (args_.token_ranks != nullptr) {
      args_.token_ranks[row_] = token >= 0
                                    ? static_cast<int32_t>(std::count_if(
                                          logits_, logits_ + vocab_,
                                          [least = logits_[token]](float x) { return x >= least; }))
                                    : 0;
    }
    if (args_.top_ids == nullptr && args_.top_logprobs == nullptr) return;
    const int32_t wanted = std::min({choice_.num_logprobs, args_.max_logprobs, args_.vocab});
    int32_t* ids = scratch_.ids;
    if (wanted > 0) {
      const Order order{logits_, vocab_, nothing ? 0.0f : top, 1.0f};
      const Cut cut = find_cut(order, wanted, scratch_, [](int64_t) { return 1.0; });
      int32_t* end = ids;
      for (int32_t id = 0; id < vocab_; ++id) {
        if (logits_[id] > cut.key || (logits_[id] == cut.key && id <= cut.id)) *end++ = id;
      }
      std::sort(ids, end, [&](int32_t a, int32_t b) { return order.before(a, b); });
      ZIPAGE_CHECK_EQ(end - ids, wanted);
    }
    const int64_t begin = static_cast<int64_t>(row_) * args_.max_logprobs;
    for (int32_t i = 0; i < args_.max_logprobs; ++i) {
      const bool filled = i < wanted;
      if (args_.top_ids != nullptr) args_.top_ids[begin + i] = filled ? ids[i] : -1;
      if (args_.top_logprobs != nullptr)
        args_.top_logprobs[begin + i] = filled ? logprob(ids[i]) : kNever;
    }
  }

  const SampleArgs& args_;
  const int32_t row_;
  const SampleRow& choice_;
  const int64_t vocab_;
  float* logits_;
  const SampleKernels& kernels_;
  const RowScratch& scratch_;
};

}  // namespace

size_t sample_workspace_bytes(const Backend::Limits& limits, const CpuContext& context) {
  return scratch_bytes(limits.vocab) * static_cast<size_t>(context.pool->num_threads()) +
         kAlignment;
}

void sample(const SampleArgs& args, CpuContext& context) {
  if (args.num_rows == 0) return;
  const SampleKernels& kernels = kernel_set(context.isa).sample;
  const auto address = reinterpret_cast<uintptr_t>(args.workspace);
  auto* base = reinterpret_cast<std::byte*>((address + kAlignment - 1) / kAlignment * kAlignment);
  const auto sample_row = [&](int64_t row, int thread) {
    const RowScratch scratch =
        scratch_at(base + scratch_bytes(args.vocab) * static_cast<size_t>(thread), args.vocab);
    RowSampler(args, static_cast<int32_t>(row), kernels, scratch).run();
  };
  // A small vocabulary's rows take less than waking the other threads.
  constexpr int64_t kMinParallelLogits = 8192;
  if (static_cast<int64_t>(args.num_rows) * args.vocab < kMinParallelLogits) {
    for (int32_t row = 0; row < args.num_rows; ++row) sample_row(row, 0);
  } else {
    context.pool->for_each(args.num_rows, sample_row);
  }
}

}  // namespace zipage::cpu
