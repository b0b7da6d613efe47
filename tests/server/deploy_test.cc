// The names that boards and scrapers know, and the files in deploy/ that use them.
#include <regex>
#include <set>

#include "server/service_fixture.h"
#include "support/files.h"
#include "support/source.h"

namespace zipage::testing_server {
namespace {

class Deploy : public ServiceTest {
 protected:
  // Names of the samples that /metrics holds once a request was answered.
  std::set<std::string> samples() {
    complete(R"("prompt":"abc")");
    std::set<std::string> names;
    const std::string text = ask("GET", "/metrics").body;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      if (text[at] != '#') names.insert(text.substr(at, text.find_first_of(" {", at) - at));
      at = end + 1;
    }
    return names;
  }
};

TEST_F(Deploy, EveryNameOfVllmIsThere) {
  const std::set<std::string> found = samples();
  // Gauges and counters as they are, histograms by their _bucket.
  for (const char* name : {"num_requests_running",
                           "num_requests_waiting",
                           "kv_cache_usage_perc",
                           "lora_requests_info",
                           "cache_config_info",
                           "prompt_tokens_total",
                           "generation_tokens_total",
                           "num_preemptions_total",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "request_success_total",
                           "spec_decode_num_drafts_total",
                           "spec_decode_num_draft_tokens_total",
                           "spec_decode_num_accepted_tokens_total",
                           "spec_decode_num_accepted_tokens_per_pos_total",
                           "compressions_total",
                           "compression_seconds_total",
                           "kv_blocks",
                           "query_slots",
                           "query_slots_used",
                           "swapped_out_blocks_total",
                           "swapped_in_blocks_total",
                           "kv_bytes_saved_total"})
    EXPECT_EQ(found.count(std::string("zipage:") + name), 1u) << name;
  for (const char* name :
       {"time_to_first_token_seconds", "inter_token_latency_seconds",
        "time_per_output_token_seconds", "e2e_request_latency_seconds",
        "request_queue_time_seconds", "request_inference_time_seconds",
        "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
        "request_generation_tokens", "request_max_num_generation_tokens",
        "request_params_max_tokens", "request_params_n", "iteration_tokens_total"}) {
    for (const char* part : {"_bucket", "_sum", "_count"})
      EXPECT_EQ(found.count(std::string("zipage:") + name + part), 1u) << name << part;
  }
  for (const char* name : {"http_requests_total", "http_request_duration_seconds_bucket",
                           "process_resident_memory_bytes", "process_virtual_memory_bytes",
                           "process_cpu_seconds_total", "process_open_fds", "process_max_fds",
                           "process_start_time_seconds"})
    EXPECT_EQ(found.count(name), 1u) << name;
}

TEST_F(Deploy, BucketsAreThoseOfVllm) {
  complete(R"("prompt":"abc")");
  const std::string text = ask("GET", "/metrics").body;
  const auto bounds = [&](const std::string& name) {
    std::string list;
    const std::regex sample("zipage:" + name + "_bucket\\{[^}]*le=\"([^\"]*)\"");
    for (std::sregex_iterator it(text.begin(), text.end(), sample), end; it != end; ++it)
      list += (list.empty() ? "" : ",") + (*it)[1].str();
    return list;
  };
  EXPECT_EQ(
      bounds("time_to_first_token_seconds"),
      "0.001,0.005,0.01,0.02,0.04,0.06,0.08,0.1,0.25,0.5,0.75,1,2.5,5,7.5,10,20,40,80,160,640,"
      "2560,+Inf");
  EXPECT_EQ(bounds("inter_token_latency_seconds"),
            "0.01,0.025,0.05,0.075,0.1,0.15,0.2,0.3,0.4,0.5,0.75,1,2.5,5,7.5,10,20,40,80,+Inf");
  EXPECT_EQ(bounds("e2e_request_latency_seconds"),
            "0.3,0.5,0.8,1,1.5,2,2.5,5,10,15,20,30,40,50,60,120,240,480,960,1920,7680,+Inf");
  EXPECT_EQ(bounds("request_params_n"), "1,2,5,10,20,+Inf");
  EXPECT_EQ(bounds("iteration_tokens_total"),
            "1,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,+Inf");
  // Up to max_model_len, 4096.
  EXPECT_EQ(bounds("request_prompt_tokens"), "1,2,5,10,20,50,100,200,500,1000,2000,+Inf");
}

TEST_F(Deploy, TheBoardAsksForNamesThatExist) {
  const std::set<std::string> found = samples();
  const std::string board = test::read_file(test::source_path("deploy/grafana/zipage.json"));
  EXPECT_TRUE(json::parse(board).is_object());
  const std::regex name(R"((\$\{prefix\}:|http_|process_)([a-z0-9_]+))");
  int asked = 0;
  const auto panels = json::serialize(json::parse(board).at("panels"));
  for (std::sregex_iterator it(panels.begin(), panels.end(), name), end; it != end; ++it) {
    const std::string prefix = (*it)[1].str() == "${prefix}:" ? "zipage:" : (*it)[1].str();
    EXPECT_EQ(found.count(prefix + (*it)[2].str()), 1u) << it->str();
    ++asked;
  }
  EXPECT_GT(asked, 20);
}

TEST(DeployFiles, StartTheProgramWhereItIsPut) {
  const std::string folder = test::source_path("deploy/");
  const std::string unit = test::read_file(folder + "zipage.service");
  const std::string image = test::read_file(folder + "Dockerfile");
  EXPECT_NE(unit.find("ExecStart=/usr/local/bin/zipage serve --config "), std::string::npos);
  EXPECT_NE(image.find("/src/build/release/bin/zipage /usr/local/bin/zipage"), std::string::npos);
  EXPECT_NE(image.find(R"(ENTRYPOINT ["zipage", "serve", "--host", "0.0.0.0"])"),
            std::string::npos);
  EXPECT_NE(image.find("http://127.0.0.1:8000/health"), std::string::npos);
  // Both end it as the server wants to be ended.
  EXPECT_NE(unit.find("KillSignal=SIGTERM"), std::string::npos);
  EXPECT_NE(image.find("STOPSIGNAL SIGTERM"), std::string::npos);
}

}  // namespace
}  // namespace zipage::testing_server
