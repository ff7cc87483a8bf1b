// Pieces of text, and strings as numbers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace caplore::meteor {

using Text = std::string_view;

constexpr int32_t NONE = -1;

// Calls `each` with the pieces of a text between separators, as `split` of Python gives them: empty ones too.
template <typename Each>
void split(Text text, char separator, Each each) {
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    each(text.substr(begin, end - begin));
    if (end == Text::npos) return;
    begin = end + 1;
  }
}

// Calls `each` with the runs of characters that stand between any of the spaces.
template <typename Each>
void split_words(Text text, Text spaces, Each each) {
  size_t end = 0;
  for (size_t begin; (begin = text.find_first_not_of(spaces, end)) != Text::npos;) {
    end = std::min(text.find_first_of(spaces, begin), text.size());
    each(text.substr(begin, end - begin));
  }
}

inline bool ends(Text word, Text suffix) {
  return word.size() >= suffix.size() && word.substr(word.size() - suffix.size()) == suffix;
}

// Eight bytes at a time: words are short, and 200,000 of them are hashed before the first caption is read.
inline uint32_t hash_of(Text text) {
  constexpr uint64_t MIX = 0x9e3779b97f4a7c15;
  uint64_t hash = text.size() * MIX;
  for (size_t at = 0; at < text.size(); at += 8) {
    uint64_t piece = 0;
    std::memcpy(&piece, text.data() + at, std::min<size_t>(8, text.size() - at));
    hash = (hash ^ piece) * MIX;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash);
}

// Strings and their numbers, counted from 0. The strings are copied, so that those in use lie close together.
class Dictionary {
 public:
  explicit Dictionary(size_t expected = 0) {
    size_t slots = 64;
    while (slots < 2 * expected) slots *= 2;
    slots_.resize(slots);
    ends_.reserve(expected);
  }

  // The lines of a text by their place; of equal ones the last counts, as in a dict of Python.
  explicit Dictionary(Text lines)
      : Dictionary(static_cast<size_t>(std::count(lines.begin(), lines.end(), '\n')) + 1) {
    texts_.reserve(lines.size());
    split(lines, '\n', [this](Text line) { put(line, hash_of(line)); });
  }

  // The number of a string, NONE where it has none.
  int32_t find(Text text) const { return find(text, hash_of(text)); }

  // The number of a string, the next one where it has none.
  int32_t add(Text text) {
    const uint32_t hash = hash_of(text);
    const int32_t known = find(text, hash);
    return known == NONE ? put(text, hash) : known;
  }

  int32_t size() const { return static_cast<int32_t>(ends_.size()); }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t number = NONE;
  };

  int32_t find(Text text, uint32_t hash) const { return slots_[slot_of(text, hash)].number; }

  int32_t put(Text text, uint32_t hash) {
    if (ends_.size() * 2 > slots_.size()) grow();
    const int32_t number = size();
    slots_[slot_of(text, hash)] = {hash, number};
    texts_.append(text);
    ends_.push_back(texts_.size());
    return number;
  }

  // Where a string is, or would be.
  size_t slot_of(Text text, uint32_t hash) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = hash & mask;
    for (;; slot = (slot + 1) & mask) {
      const Slot& at = slots_[slot];
      if (at.number == NONE || (at.hash == hash && text_of(at.number) == text)) return slot;
    }
  }

  Text text_of(int32_t number) const {
    const auto place = static_cast<size_t>(number);
    const size_t begin = place == 0 ? 0 : ends_[place - 1];
    return {texts_.data() + begin, ends_[place] - begin};
  }

  // Strings in the slots differ, so that only their hashes matter.
  void grow() {
    std::vector<Slot> old(slots_.size() * 4);
    old.swap(slots_);
    const size_t mask = slots_.size() - 1;
    for (const Slot& moved : old) {
      if (moved.number == NONE) continue;
      size_t slot = moved.hash & mask;
      while (slots_[slot].number != NONE) slot = (slot + 1) & mask;
      slots_[slot] = moved;
    }
  }

  std::vector<Slot> slots_;
  std::string texts_;
  std::vector<size_t> ends_;
};

}  // namespace caplore::meteor
