// From the tree to the table: the tree becomes a program of small steps, all of whose threads are
// followed at once, the preferred one first; each list of threads that occurs is a state.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tokenizer/pattern_tree.h"
#include "tokenizer/scanner.h"

namespace zipage {

class ScannerBuilder {
 public:
  // False: the pattern would grow too large.
  bool compile(const PatternNode& tree) {
    program_.push_back({.what = Step::What::kMatch});
    const auto start = add(tree, 0);
    if (!start) return false;
    find_kinds();
    return fits_ && find_states(*start);
  }
  std::unique_ptr<const Scanner> finish() {
    return std::make_unique<const Scanner>(std::move(scanner_));
  }

 private:
  static constexpr size_t kMaxSteps = 500;
  static constexpr size_t kMaxStates = 500;
  static constexpr size_t kMaxSets = 64;

  struct Step {
    enum class What { kMatch, kSet, kBefore, kEither };
    What what;
    size_t set = 0;  // kSet, kBefore: index into sets_
    size_t next = 0;
    size_t other = 0;  // kEither: where to go if `next` leads to no match
  };
  struct Run {  // of characters of a kind, up to where the next one starts
    char32_t first;
    uint8_t kind;
  };
  using Threads = std::vector<size_t>;  // where in the program, the preferred one first

  // Adds the steps of `node` in front of those at `next`: where they begin.
  std::optional<size_t> add(const PatternNode& node, size_t next) {
    switch (node.kind) {
      case PatternNode::Kind::kSet:
        return push({.what = Step::What::kSet, .set = index_of(node.set), .next = next});
      case PatternNode::Kind::kBefore:
        return push({.what = Step::What::kBefore, .set = index_of(node.set), .next = next});
      case PatternNode::Kind::kSequence: {
        std::optional<size_t> begin = next;
        for (auto child = node.children.rbegin(); begin && child != node.children.rend(); ++child) {
          begin = add(*child, *begin);
        }
        return begin;
      }
      case PatternNode::Kind::kChoice: {
        std::optional<size_t> begin = add(node.children.back(), next);
        for (size_t i = node.children.size() - 1; begin && i-- > 0;) {
          const auto first = add(node.children[i], next);
          begin = first ? either(*first, *begin) : std::nullopt;
        }
        return begin;
      }
      case PatternNode::Kind::kRepeat:
        return add_repeat(node, next);
    }
    return std::nullopt;
  }

  std::optional<size_t> add_repeat(const PatternNode& node, size_t next) {
    const PatternNode& child = node.children[0];
    if (can_be_empty(child)) return std::nullopt;
    std::optional<size_t> begin = next;
    if (node.max == PatternNode::kNoMax) {
      begin = either(next, next);
      const auto again = begin ? add(child, *begin) : std::nullopt;
      if (!again) return std::nullopt;
      program_[*begin].next = *again;
    }
    for (int i = node.min; begin && i < node.max; ++i) {
      const auto first = add(child, *begin);
      begin = first ? either(*first, next) : std::nullopt;
    }
    for (int i = 0; begin && i < node.min; ++i) begin = add(child, *begin);
    return begin;
  }

  static bool can_be_empty(const PatternNode& node) {
    const auto& children = node.children;
    switch (node.kind) {
      case PatternNode::Kind::kSet:
        return false;
      case PatternNode::Kind::kBefore:
        return true;
      case PatternNode::Kind::kSequence:
        return std::all_of(children.begin(), children.end(), can_be_empty);
      case PatternNode::Kind::kChoice:
        return std::any_of(children.begin(), children.end(), can_be_empty);
      case PatternNode::Kind::kRepeat:
        return node.min == 0 || can_be_empty(children[0]);
    }
    return true;
  }

  std::optional<size_t> push(const Step& step) {
    if (program_.size() == kMaxSteps) return std::nullopt;
    program_.push_back(step);
    return program_.size() - 1;
  }
  std::optional<size_t> either(size_t first, size_t second) {
    return push({.what = Step::What::kEither, .next = first, .other = second});
  }
  size_t index_of(const CodePointSet& set) {
    const auto found = std::find(sets_.begin(), sets_.end(), set);
    if (found != sets_.end()) return static_cast<size_t>(found - sets_.begin());
    sets_.push_back(set);
    return sets_.size() - 1;
  }

  // Characters that are in the same sets are of one kind.
  void find_kinds() {
    fits_ = sets_.size() <= kMaxSets;
    if (!fits_) return;
    std::vector<std::pair<char32_t, uint64_t>> changes = {{0, 0}};  // where sets begin and end
    for (size_t set = 0; set < sets_.size(); ++set) {
      for (const CodePointSet::Range& range : sets_[set].ranges()) {
        changes.emplace_back(range.first, uint64_t{1} << set);
        changes.emplace_back(range.last + 1, uint64_t{1} << set);
      }
    }
    std::sort(changes.begin(), changes.end());
    std::map<uint64_t, uint8_t> kinds;
    uint64_t members = 0;
    for (auto change = changes.begin(); change != changes.end() && fits_;) {
      const char32_t first = change->first;
      if (first > kMaxCodePoint) break;
      for (; change != changes.end() && change->first == first; ++change) members ^= change->second;
      const auto [kind, is_new] = kinds.emplace(members, static_cast<uint8_t>(kinds.size()));
      if (is_new) sets_of_kind_.push_back(members);
      fits_ = kinds.size() < 255;
      runs_.push_back({first, kind->second});
    }
    runs_.push_back({kMaxCodePoint + 1, 0});
    scanner_.end_kind_ = sets_of_kind_.size();
    make_pages();
    std::copy_n(scanner_.pages_.begin(), scanner_.ascii_kinds_.size(),
                scanner_.ascii_kinds_.begin());
  }

  void make_pages() {
    constexpr size_t kSize = Scanner::kPageSize;
    std::map<std::string, uint16_t> known;
    std::string page(kSize, '\0');
    auto run = runs_.begin();
    for (char32_t at = 0; at <= kMaxCodePoint; at += kSize) {
      while (run[1].first <= at) ++run;
      if (run[1].first >= at + kSize && run->first + kSize <= at) {  // as the page before
        scanner_.page_of_.push_back(scanner_.page_of_.back());
        continue;
      }
      for (auto part = run; part->first < at + kSize; ++part) {
        const char32_t begin = std::max(part->first, at) - at;
        const char32_t end = std::min<char32_t>(part[1].first - at, kSize);
        std::fill(page.begin() + begin, page.begin() + end, static_cast<char>(part->kind));
      }
      const auto [found, is_new] = known.emplace(page, static_cast<uint16_t>(known.size()));
      if (is_new) scanner_.pages_.insert(scanner_.pages_.end(), page.begin(), page.end());
      scanner_.page_of_.push_back(found->second);
    }
  }

  // What becomes of the threads of a state.
  struct Following {
    std::vector<bool> seen;  // by where in the program
    std::vector<bool> is_next;
    Threads next;
  };
  // Adds where a thread at `at` can be after a character of `kind`. True if it matches before that:
  // threads behind it count no more.
  bool follow(size_t at, size_t kind, Following& out) const {
    if (out.seen[at]) return false;
    out.seen[at] = true;
    const Step& step = program_[at];
    const bool at_end = kind == scanner_.end_kind_;
    const auto is_in_set = [&] { return (sets_of_kind_[kind] >> step.set & 1) != 0; };
    switch (step.what) {
      case Step::What::kMatch:
        return true;
      case Step::What::kSet:
        if (!at_end && is_in_set() && !out.is_next[step.next]) {
          out.is_next[step.next] = true;
          out.next.push_back(step.next);
        }
        return false;
      case Step::What::kBefore:
        return (at_end || is_in_set()) && follow(step.next, kind, out);
      case Step::What::kEither:
        return follow(step.next, kind, out) || follow(step.other, kind, out);
    }
    return false;
  }

  bool find_states(size_t start) {
    const size_t width = scanner_.end_kind_ + 1;
    std::map<Threads, uint32_t> rows = {{{}, 0}, {{start}, static_cast<uint32_t>(width)}};
    std::vector<Threads> todo = {{start}};
    scanner_.start_ = static_cast<uint32_t>(width);
    scanner_.table_.assign(width, 0);
    for (size_t state = 0; state < todo.size(); ++state) {
      for (size_t kind = 0; kind < width; ++kind) {
        Following out{std::vector<bool>(program_.size()), std::vector<bool>(program_.size()), {}};
        const bool matched = std::any_of(todo[state].begin(), todo[state].end(),
                                         [&](size_t thread) { return follow(thread, kind, out); });
        if (matched && state == 0) return false;  // it can match nothing
        const auto [row, is_new] =
            rows.emplace(out.next, static_cast<uint32_t>((todo.size() + 1) * width));
        if (is_new) todo.push_back(out.next);
        scanner_.table_.push_back(row->second << 1 | (matched ? Scanner::kMatched : 0));
      }
      if (todo.size() > kMaxStates) return false;
    }
    find_beginnings();
    return true;
  }

  // First bytes grow with the code points.
  void find_beginnings() {
    const auto bytes = scanner_.may_begin_.begin();
    const auto first_byte = [](char32_t c) {
      std::string character;
      append_utf8(c, character);
      return static_cast<uint8_t>(character[0]);
    };
    for (size_t i = 0; i + 1 < runs_.size(); ++i) {
      if (scanner_.table_[scanner_.start_ + runs_[i].kind] == 0) continue;
      std::fill(bytes + first_byte(runs_[i].first), bytes + first_byte(runs_[i + 1].first - 1) + 1,
                true);
    }
    std::fill(bytes + 0x80, bytes + 0xC2, false);  // these are in between, and no first bytes
  }

  Scanner scanner_;
  std::vector<Step> program_;
  std::vector<CodePointSet> sets_;
  std::vector<Run> runs_;               // all code points, and one run behind them
  std::vector<uint64_t> sets_of_kind_;  // bit s: sets_[s] has the characters of this kind
  bool fits_ = true;
};

std::unique_ptr<const Scanner> Scanner::compile(std::string_view pattern) {
  const auto tree = parse_pattern(pattern);
  ScannerBuilder builder;
  return tree && builder.compile(*tree) ? builder.finish() : nullptr;
}

}  // namespace zipage
