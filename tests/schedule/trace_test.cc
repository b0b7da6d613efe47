// Scheduler traces: traces/*.txt are commands ("> step"), each followed by what must come of it.
// ZIPAGE_UPDATE_TRACES=1 writes what comes of them into the files instead: read the difference
// before you believe it.
//
//   > options NAME=VALUE...       once, first
//   > add ID prompt=N output=N [max_new=N] [budget=N] [policy=NAME] [priority=N]
//         [tokens=FIRST] [salt=TEXT] [reads=off]
//                                 prompt ids are FIRST, FIRST+1, ...; without FIRST every
//                                 sequence has ids of its own
//   > step [N]                    plan and commit, N times (the last one is shown); compressions
//                                 stay open
//   > plan, > commit              the two halves of a step
//   > done ID, > fail ID          the sequence's compression ends
//   > abort ID, > preempt ID      at once
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "base/check.h"
#include "schedule/driver.h"
#include "support/source.h"

namespace zipage::testing {
namespace {

using Words = std::map<std::string, std::string>;

KvPolicy policy_of(const std::string& name) {
  const std::map<std::string, KvPolicy> names = {{"peak", KvPolicy::kPeak},
                                                 {"paper", KvPolicy::kPaper}};
  return names.at(name);
}

class TraceRunner {
 public:
  std::string run(const std::string& command) {
    std::istringstream in(command);
    std::string verb;
    in >> verb;
    if (verb == "options") return options(words(in));
    // Numbers are those after the call: operands of + have no order.
    if (verb == "plan") {
      const std::string plan = show(driver_->plan());
      return plan + stats();
    }
    if (verb == "commit") {
      const std::string ends = commit();
      return ends + stats();
    }
    SequenceId id = 0;
    if (verb == "step") {
      int count = 1;
      in >> count;
      std::string last;
      for (int i = 0; i < count; ++i) {
        last = show(driver_->plan());
        last += commit();
      }
      return last + stats();
    }
    ZIPAGE_CHECK(in >> id);
    if (verb == "add") return add(id, words(in));
    if (verb == "done" || verb == "fail") {
      for (size_t i = 0; i < driver_->jobs().size(); ++i) {
        if (driver_->jobs()[i].sequence != id) continue;
        driver_->complete(i, verb == "done");
        return stats();
      }
    }
    if (verb == "abort") {
      driver_->abort(id);
      return stats();
    }
    if (verb == "preempt") {
      const bool done = driver_->scheduler().force_preempt(id);
      return fmt::format("{}{}", done ? "" : "no\n", stats());
    }
    check_failed(__FILE__, __LINE__, fmt::format("unknown command: {}", command));
  }

 private:
  static Words words(std::istream& in) {
    Words result;
    for (std::string word; in >> word;) {
      const size_t equals = word.find('=');
      ZIPAGE_CHECK_NE(equals, std::string::npos);
      result[word.substr(0, equals)] = word.substr(equals + 1);
    }
    return result;
  }

  std::string options(const Words& given) {
    SchedulerOptions o;
    o.enable_prefix_caching = false;
    o.max_model_len = 1000;
    o.compression.protect_newest = 0;
    const std::map<std::string, int32_t*> numbers = {
        {"num_blocks", &o.num_blocks},          {"block_size", &o.block_size},
        {"slots", &o.max_query_slots},          {"max_num_seqs", &o.max_num_seqs},
        {"batched", &o.max_num_batched_tokens}, {"max_blocks", &o.max_blocks_per_seq},
        {"host_blocks", &o.num_host_blocks},    {"host_slots", &o.num_host_slots},
        {"window", &o.compression.window_size}, {"half_life", &o.compression.attention_half_life}};
    for (const auto& [name, value] : given) {
      if (name == "watermark") {
        o.watermark = value == "on";
      } else if (name == "scheduling") {
        o.scheduling = value == "hybrid" ? Scheduling::kHybrid : Scheduling::kConstrained;
      } else if (name == "prefix") {
        o.enable_prefix_caching = value == "on";
      } else {
        *numbers.at(name) = std::stoi(value);
      }
    }
    driver_ = std::make_unique<Driver>(o);
    return "";
  }

  std::string add(SequenceId id, const Words& given) {
    const auto number = [&](const char* name, int fallback) {
      return given.count(name) > 0 ? std::stoi(given.at(name)) : fallback;
    };
    SequenceSpec spec;
    spec.id = id;
    const int first = number("tokens", static_cast<int>(id) * 1000);
    for (int i = 0; i < number("prompt", 1); ++i) spec.prompt.push_back(first + i);
    spec.max_new_tokens = number("max_new", std::max(24, number("output", 1)));
    spec.priority = number("priority", 0);
    if (given.count("budget") > 0) spec.kv_budget = number("budget", 0);
    if (given.count("policy") > 0) spec.kv_policy = policy_of(given.at("policy"));
    if (given.count("salt") > 0) spec.hash_keys = {given.at("salt")};
    if (given.count("reads") > 0) spec.reads_prefix_cache = given.at("reads") != "off";
    const Status status = driver_->scheduler().can_ever_run(spec);
    if (!status.ok()) return fmt::format("{}: {}\n", to_string(status.code()), status.message());
    driver_->add(std::move(spec), number("output", 1));
    return "";
  }

  template <typename Ids>
  static std::string list(const Ids& ids) {
    std::string text;
    for (const auto& id : ids) {
      if (!text.empty()) text += ',';
      text += std::to_string(id.value());
    }
    return text;
  }

  static std::string show(const StepPlan& plan) {
    std::ostringstream out;
    for (const SwapOp& op : plan.swaps) {
      out << (op.out ? "swap out " : "swap in ") << op.sequence << " kv " << op.kv_len
          << " history " << op.history;
      if (op.slot.valid()) out << " slot " << op.slot.value();
      out << " device " << list(op.device_blocks) << " host";
      for (const int32_t block : op.host_blocks) out << ' ' << block;
      out << '\n';
    }
    for (const PlannedRow& row : plan.rows) {
      out << "row " << row.sequence << " at " << row.position << "+" << row.num_tokens;
      if (row.kv_begin != row.position) out << " kv " << row.kv_begin;
      if (row.slot.valid()) out << " slot " << row.slot.value();
      if (row.samples) out << " samples";
      if (row.peak_previous_length >= 0) out << " peak " << row.peak_previous_length;
      out << " table "
          << list(std::vector<BlockId>(plan.blocks.begin() + row.table,
                                       plan.blocks.begin() + row.table + row.num_blocks))
          << '\n';
    }
    return out.str();
  }

  std::string commit() {
    const size_t count = driver_->commit_plan();
    std::ostringstream out;
    for (size_t i = driver_->jobs().size() - count; i < driver_->jobs().size(); ++i) {
      const CompressJob& job = driver_->jobs()[i];
      out << "compress " << job.sequence << " n " << job.length << " keep " << job.keep
          << " history " << job.history << " offset " << job.position_offset << " source "
          << list(job.source) << " target " << list(job.target) << '\n';
    }
    return out.str();
  }

  std::string stats() const {
    const SchedulerStats s = driver_->scheduler().stats();
    std::ostringstream out;
    out << "waiting " << s.num_waiting << " running " << s.num_running << " compressing "
        << s.num_compressing << " swapped " << s.num_swapped << " blocked " << s.num_blocked
        << " free " << s.num_free_blocks << " cached " << s.num_cached_blocks << " slots "
        << s.num_used_slots << '\n';
    return out.str();
  }

  std::unique_ptr<Driver> driver_;
};

class TraceTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TraceTest, GivesWhatTheFileSays) {
  const std::string path = test::source_path("tests/schedule/traces/") + GetParam() + ".txt";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  TraceRunner runner;
  std::string expected, actual, line;
  while (std::getline(file, line)) {
    expected += line + "\n";
    if (line.empty() || line[0] == '#') {
      actual += line + "\n";
    } else if (line[0] == '>') {
      actual += line + "\n";
      actual += runner.run(line.substr(1));
    }
  }
  if (std::getenv("ZIPAGE_UPDATE_TRACES") != nullptr) std::ofstream(path) << actual;
  EXPECT_EQ(actual, expected);
  EXPECT_NE(actual.find("\nrow "), std::string::npos) << "nothing ran";
}

std::vector<std::string> trace_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("tests/schedule/traces"))) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, TraceTest, ::testing::ValuesIn(trace_names()));

}  // namespace
}  // namespace zipage::testing
