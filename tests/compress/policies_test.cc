// The ops that each policy calls, in the order of docs/method.md 3.
#include "compress/policies.h"

#include <gtest/gtest.h>

#include "compress/compressor_fixture.h"
#include "support/forwarding_backend.h"

namespace zipage::testing {
namespace {

class RecordingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  std::string ops;

 protected:
  void before_op(const char* name) override {
    if (!ops.empty()) ops += " ";
    ops += name;
  }
};

// Ops of a compression of job `index`; all layers in one stride.
std::string ops_of(CompressionOptions options, size_t index = 0) {
  RecordingBackend backend(make_backend("cpu", 1));
  CompressionCase c(backend, shape_of_tests(), case_jobs(), 21);
  Compressor compressor(backend, c.view(), model_of(c), options, limits_of_tests());
  backend.ops.clear();
  compress(compressor, {jobs_of(c, {options.kv_policy})[index]}, c.stream());
  const std::string tail = " protect top_k compact";
  EXPECT_TRUE(backend.ops.ends_with(tail)) << backend.ops;
  return backend.ops.substr(0, backend.ops.size() - tail.size());
}

TEST(PoliciesTest, EachPolicyIsAFewOps) {
  EXPECT_EQ(ops_of(options_of(KvPolicy::kPeak)), "normalized_history center_redundancy combine");
  EXPECT_EQ(ops_of(options_of(KvPolicy::kPaper)),
            "attention_score global_score max_pool redundancy combine");
  EXPECT_EQ(ops_of(options_of(KvPolicy::kAttention)), "attention_score");
  EXPECT_EQ(ops_of(options_of(KvPolicy::kRedundancy)),
            "attention_score max_pool redundancy combine");
  EXPECT_EQ(ops_of(options_of(KvPolicy::kGlobal)), "attention_score global_score max_pool");
  EXPECT_EQ(ops_of(options_of(KvPolicy::kRecency)), "plain_score");
  EXPECT_EQ(ops_of(options_of(KvPolicy::kRandom)), "plain_score");
}

TEST(PoliciesTest, PeakMakesFOfAPromptThatNoUpdateHasSeen) {
  EXPECT_EQ(ops_of(options_of(KvPolicy::kPeak), 4),
            "peak_update normalized_history center_redundancy combine");
  EXPECT_EQ(ops_of(options_of(KvPolicy::kPaper), 4),
            "attention_score global_score max_pool redundancy combine");
}

// The new F is S before pooling: without pooling S is copied, as protection writes into scores.
TEST(PoliciesTest, WithoutPoolingNothingIsPooled) {
  auto options = options_of(KvPolicy::kPaper);
  options.pooling = Pooling::kNever;
  EXPECT_EQ(ops_of(options), "attention_score global_score redundancy combine");
  options.kv_policy = KvPolicy::kGlobal;
  EXPECT_EQ(ops_of(options), "attention_score global_score combine");
}

}  // namespace
}  // namespace zipage::testing
