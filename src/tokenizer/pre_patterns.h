// How the families cut text before merging, by the name that GGUF files give in tokenizer.ggml.pre.
// A new family is a row of the table in pre_patterns.cc. Its patterns are regular expressions; they
// are as quick as the others if scanner_test.cc, which takes every pattern, can make tables of
// them.
#pragma once

#include <string>
#include <vector>

namespace zipage {

struct PreRule {
  std::vector<std::string> patterns;  // applied one after the other, each cutting the pieces before
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};

// Every name that find_pre_rule() knows; "" is the rule of files that give none.
std::vector<std::string> pre_rule_names();

// Throws Error naming `file` if the name is unknown.
PreRule find_pre_rule(const std::string& name, const std::string& file);

}  // namespace zipage
