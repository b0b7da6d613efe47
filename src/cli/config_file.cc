#include "cli/config_file.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <vector>
#include <yaml-cpp/yaml.h>

#include "base/error.h"

namespace zipage::cli {
namespace {

std::string flag_of(std::string key) {
  key.erase(0, key.find_first_not_of('-'));
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

std::vector<std::string> values_of(const YAML::Node& node,
                                   const std::string& key,
                                   const std::string& path) {
  if (node.IsScalar()) return {node.Scalar()};
  if (node.IsSequence()) {
    std::vector<std::string> values;
    for (const YAML::Node& item : node) {
      if (!item.IsScalar())
        fail_invalid("{}: key '{}': expected a value or a list of values", path, key);
      values.push_back(item.Scalar());
    }
    return values;
  }
  fail_invalid("{}: key '{}': expected a value or a list of values", path, key);
}

void apply_file(CLI::App& command, const std::string& path) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    fail(StatusCode::kNotFound, "--config: cannot read '{}'", path);
  } catch (const YAML::Exception& error) {
    fail_invalid("--config: {}: {}", path, error.what());
  }
  if (root.IsNull()) return;
  if (!root.IsMap()) fail_invalid("--config: {}: expected a mapping of flags to values", path);
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) fail_invalid("--config: {}: a key is not a word", path);
    const std::string key = entry.first.Scalar();
    CLI::Option* option = command.get_option_no_throw(flag_of(key));
    if (option == nullptr || key == "config") {
      fail_invalid("--config: {}: '{}' is not a flag of 'zipage {}'", path, key,
                   command.get_name());
    }
    if (option->count() > 0) continue;
    std::vector<std::string> values = values_of(entry.second, key, path);
    // A list for a flag that takes one word is that word with commas: kv-budget: [full, 512].
    if (option->get_expected_max() == 1 && values.size() > 1)
      values = {fmt::format("{}", fmt::join(values, ","))};
    try {
      for (const std::string& value : values) option->add_result(value);
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      fail_invalid("--config: {}: '{}': {}", path, key, error.what());
    }
  }
}

}  // namespace

void apply_config_files(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands()) {
    const CLI::Option* config = command->get_option_no_throw("--config");
    if (config != nullptr && config->count() > 0) apply_file(*command, config->as<std::string>());
    apply_config_files(*command);
  }
}

}  // namespace zipage::cli
