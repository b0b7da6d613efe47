#include "oracle/sampling_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace zipage::oracle {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

std::vector<double> softmax(const std::vector<double>& z) {
  const double top = *std::max_element(z.begin(), z.end());
  std::vector<double> p(z.size());
  double total = 0;
  for (size_t i = 0; i < z.size(); ++i) total += p[i] = std::exp(z[i] - top);
  for (double& x : p) x /= total;
  return p;
}

// The shortest prefix of `order` whose probability is at least `mass` stays; its length.
size_t prefix_of(const std::vector<int>& order, const std::vector<double>& p, double mass) {
  double sum = 0;
  size_t length = 0;
  while (length < order.size() && (length == 0 || sum < mass)) sum += p[order[length++]];
  return length;
}

}  // namespace

std::vector<double> raw_logits(const SampleArgs& args, int row) {
  const float* logits = args.logits + static_cast<int64_t>(row) * args.vocab;
  std::vector<double> z(logits, logits + args.vocab);
  for (double& x : z) {
    if (std::isnan(x)) x = kNever;
    if (x > std::numeric_limits<float>::max()) x = std::numeric_limits<float>::max();
  }
  return z;
}

std::vector<int> order_of(const std::vector<double>& values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return values[a] > values[b]; });
  return order;
}

std::vector<double> changed_logits(const SampleArgs& args, int row) {
  const SampleRow& r = args.rows[row];
  std::vector<double> z = raw_logits(args, row);
  for (int id = 0; id < args.vocab; ++id) {
    if (r.mask_slot >= 0) {
      const uint32_t word =
          args.allowed_masks[static_cast<int64_t>(r.mask_slot) * ((args.vocab + 31) / 32) +
                             id / 32];
      if ((word >> (id % 32) & 1u) == 0) z[id] = kNever;
    }
  }
  for (int i = r.bias_begin; i < r.bias_begin + r.bias_count; ++i)
    z[args.bias_ids[i]] += args.bias_values[i];
  if (r.count_slot >= 0) {
    for (int id = 0; id < args.vocab; ++id) {
      const uint32_t entry =
          args.token_counts[static_cast<int64_t>(r.count_slot) * args.vocab + id];
      const uint32_t times = entry & 0x7fffffffu;
      // Repetition: prompt and output; frequency and presence: output.
      if (entry != 0)
        z[id] = z[id] > 0 ? z[id] / r.repetition_penalty : z[id] * r.repetition_penalty;
      z[id] -= static_cast<double>(r.frequency_penalty) * times;
      if (times > 0) z[id] -= r.presence_penalty;
    }
  }
  return z;
}

std::vector<double> token_distribution(const SampleArgs& args, int row) {
  const SampleRow& r = args.rows[row];
  std::vector<double> z = changed_logits(args, row);
  std::vector<double> p(z.size(), 0.0);
  // Nothing is left to draw.
  if (*std::max_element(z.begin(), z.end()) == kNever) return p;
  if (r.temperature <= 0) {
    p[order_of(z)[0]] = 1;
    return p;
  }
  for (double& x : z) x /= r.temperature;
  // min-p: p < min_p * max(p) goes.
  p = softmax(z);
  const double top = *std::max_element(p.begin(), p.end());
  for (size_t i = 0; i < z.size(); ++i) {
    if (p[i] < r.min_p * top) z[i] = kNever;
  }
  // top-k: what is below the k-th largest goes; equals of it stay.
  if (r.top_k > 0 && r.top_k < args.vocab) {
    const double least = z[order_of(z)[r.top_k - 1]];
    for (double& x : z) {
      if (x < least) x = kNever;
    }
  }
  // top-p: the shortest prefix of the sorted tokens with that probability stays.
  if (r.top_p < 1) {
    p = softmax(z);
    const std::vector<int> order = order_of(z);
    for (size_t i = prefix_of(order, p, r.top_p); i < order.size(); ++i) z[order[i]] = kNever;
  }
  // typical-p: sorted by | -log p - H |; equals of the last stay.
  if (r.typical_p < 1) {
    p = softmax(z);
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    std::vector<double> nearness(z.size());
    for (size_t i = 0; i < z.size(); ++i)
      nearness[i] = p[i] > 0 ? -std::abs(-std::log(p[i]) - entropy) : kNever;
    const std::vector<int> order = order_of(nearness);
    const double least = nearness[order[prefix_of(order, p, r.typical_p) - 1]];
    for (size_t i = 0; i < z.size(); ++i) {
      if (nearness[i] < least - 1e-9) z[i] = kNever;
    }
  }
  return softmax(z);
}

std::vector<double> raw_logprobs(const SampleArgs& args, int row) {
  std::vector<double> z = raw_logits(args, row);
  const double top = *std::max_element(z.begin(), z.end());
  if (top == kNever) return z;
  double total = 0;
  for (const double x : z) total += std::exp(x - top);
  for (double& x : z) x = x - top - std::log(total);
  return z;
}

}  // namespace zipage::oracle
