// stem.py: English stems by the Snowball stemmer of 2010, step by step as there.
#pragma once
#include <array>

#include "strings.hpp"

namespace caplore::meteor {

using Letters = std::u32string;  // code points, as Python counts them

// UTF-8, lone surrogates included.
inline Letters decoded(Text text) {
  Letters letters;
  letters.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      letters.push_back(byte);
    } else if (byte < 0xc0) {
      letters.back() = letters.back() << 6 | (byte & 0x3f);
    } else {
      letters.push_back(byte < 0xe0 ? byte & 0x1f : byte < 0xf0 ? byte & 0x0f : byte & 0x07);
    }
  }
  return letters;
}

inline bool among(char32_t letter, Text letters) {
  return letter < 0x80 && letters.find(static_cast<char>(letter)) != Text::npos;
}

inline bool is_vowel(char32_t letter) { return among(letter, "aeiouy"); }

inline bool is(const Letters& word, Text other) {
  return std::equal(word.begin(), word.end(), other.begin(), other.end());
}

inline bool starts(const Letters& word, Text prefix) {
  return word.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), word.begin());
}

inline bool ends(const Letters& word, Text suffix) {
  return word.size() >= suffix.size() && std::equal(suffix.begin(), suffix.end(), word.end() - suffix.size());
}

template <size_t N>
inline bool ends_any(const Letters& word, const std::array<Text, N>& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](Text suffix) { return ends(word, suffix); });
}

inline bool has_vowel(const Letters& word, size_t end) {
  return std::any_of(word.begin(), word.begin() + std::min(end, word.size()), is_vowel);
}

inline Letters with(const Letters& word, size_t size, Text suffix) {
  Letters made = word.substr(0, size);
  made.append(suffix.begin(), suffix.end());
  return made;
}

inline void mark_consonant_y(Letters& word) {
  size_t at = 0;
  if (!word.empty() && word[0] == 'y') word[at++] = 'Y';
  while (at + 1 < word.size()) {
    if (is_vowel(word[at]) && word[at + 1] == 'y') {
      word[at + 1] = 'Y';
      at += 2;
    } else {
      ++at;
    }
  }
}

// After the first non-vowel that follows a vowel; the length of the word where there is none.
inline size_t region_from(const Letters& word, size_t at) {
  while (at < word.size() && !is_vowel(word[at])) ++at;
  while (at < word.size() && is_vowel(word[at])) ++at;
  return std::min(at + 1, word.size());
}

struct Regions {
  size_t first, second;
};

inline Regions regions_of(const Letters& word) {
  size_t first = region_from(word, 0);
  for (const Text start : {"gener", "commun", "arsen"}) {
    if (starts(word, start)) first = start.size();
  }
  return {first, region_from(word, first)};
}

inline Letters without_possessive(const Letters& word) {
  for (const Text suffix : {"'s'", "'s", "'"}) {
    if (ends(word, suffix)) return word.substr(0, word.size() - suffix.size());
  }
  return word;
}

inline Letters without_plural(const Letters& word) {
  const size_t size = word.size();
  if (ends(word, "sses")) return word.substr(0, size - 2);
  if (ends(word, "ied") || ends(word, "ies")) return word.substr(0, size > 4 ? size - 2 : size - 1);
  const bool plural = ends(word, "s") && !ends(word, "us") && !ends(word, "ss") && size > 2;
  return plural && has_vowel(word, size - 2) ? word.substr(0, size - 1) : word;
}

inline bool ends_in_short_syllable(const Letters& word) {
  const size_t size = word.size();
  if (size == 2) return is_vowel(word[0]) && !is_vowel(word[1]);
  if (size < 3 || is_vowel(word[size - 3])) return false;
  return is_vowel(word[size - 2]) && !among(word[size - 1], "aeiouywxY");
}

constexpr std::array<Text, 3> NEED_E = {"at", "bl", "iz"};
constexpr std::array<Text, 9> DOUBLES = {"bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"};

inline Letters restored(const Letters& rest, size_t r1) {
  if (ends_any(rest, NEED_E)) return with(rest, rest.size(), "e");
  if (ends_any(rest, DOUBLES)) return rest.substr(0, rest.size() - 1);
  return rest.size() <= r1 && ends_in_short_syllable(rest) ? with(rest, rest.size(), "e") : rest;
}

inline Letters without_past_and_gerund(const Letters& word, size_t r1) {
  for (const Text suffix : {"eedly", "eed"}) {
    if (!ends(word, suffix)) continue;
    const size_t rest = word.size() - suffix.size();
    return rest >= r1 ? with(word, rest, "ee") : word;
  }
  for (const Text suffix : {"ingly", "edly", "ing", "ed"}) {
    if (!ends(word, suffix)) continue;
    const size_t rest = word.size() - suffix.size();
    return has_vowel(word, rest) ? restored(word.substr(0, rest), r1) : word;
  }
  return word;
}

inline void end_with_i(Letters& word) {
  const size_t size = word.size();
  if (size > 2 && among(word[size - 1], "yY") && !is_vowel(word[size - 2])) word[size - 1] = 'i';
}

struct Rule {
  Text suffix, by;
};

constexpr std::array<Rule, 24> STEP_2 = {{
    {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},   {"abli", "able"},   {"entli", "ent"},
    {"izer", "ize"},    {"ization", "ize"}, {"ational", "ate"}, {"ation", "ate"},   {"ator", "ate"},
    {"alism", "al"},    {"aliti", "al"},    {"alli", "al"},     {"fulness", "ful"}, {"ousli", "ous"},
    {"ousness", "ous"}, {"iveness", "ive"}, {"iviti", "ive"},   {"biliti", "ble"},  {"bli", "ble"},
    {"fulli", "ful"},   {"lessli", "less"}, {"ogi", "og"},      {"li", ""},
}};
constexpr std::array<Rule, 9> STEP_3 = {{
    {"tional", "tion"}, {"ational", "ate"}, {"alize", "al"}, {"icate", "ic"}, {"iciti", "ic"},
    {"ical", "ic"},     {"ful", ""},        {"ness", ""},    {"ative", ""},
}};
constexpr std::array<Rule, 18> STEP_4 = {{
    {"al", ""},   {"ance", ""}, {"ence", ""}, {"er", ""},  {"ic", ""},  {"able", ""},
    {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""}, {"ent", ""}, {"ism", ""},
    {"ate", ""},  {"iti", ""},  {"ous", ""},  {"ive", ""}, {"ize", ""}, {"ion", ""},
}};

inline bool fits(Text suffix, const Letters& word, size_t rest, bool in_r2) {
  const char32_t before = rest > 0 ? word[rest - 1] : 0;
  if (suffix == "li") return among(before, "cdeghkmnrt");
  if (suffix == "ogi") return before == 'l';
  if (suffix == "ion") return before == 's' || before == 't';
  return suffix != "ative" || in_r2;
}

// The longest suffix that the word has goes, or nothing does.
template <size_t N>
inline Letters replaced(const Letters& word, const std::array<Rule, N>& rules, size_t region, size_t r2) {
  const Rule* longest = nullptr;
  for (const Rule& rule : rules) {
    const bool longer = longest == nullptr || rule.suffix.size() > longest->suffix.size();
    if (longer && ends(word, rule.suffix)) longest = &rule;
  }
  if (longest == nullptr) return word;
  const size_t rest = word.size() - longest->suffix.size();
  const bool goes = rest >= region && fits(longest->suffix, word, rest, rest >= r2);
  return goes ? with(word, rest, longest->by) : word;
}

inline Letters without_final_letter(const Letters& word, Regions regions) {
  const size_t size = word.size();
  if (size == 0) return word;
  const size_t last = size - 1;
  if (ends(word, "e")) {
    const bool goes = last >= regions.second ||
                      (last >= regions.first && !ends_in_short_syllable(word.substr(0, last)));
    if (goes) return word.substr(0, last);
  }
  return ends(word, "ll") && last >= regions.second ? word.substr(0, last) : word;
}

constexpr std::array<Rule, 18> WHOLE = {{
    {"skis", "ski"},    {"skies", "sky"}, {"dying", "die"},   {"lying", "lie"},   {"tying", "tie"},
    {"idly", "idl"},    {"gently", "gentl"}, {"ugly", "ugli"}, {"early", "earli"}, {"only", "onli"},
    {"singly", "singl"}, {"sky", "sky"},  {"news", "news"},   {"howe", "howe"},   {"atlas", "atlas"},
    {"cosmos", "cosmos"}, {"bias", "bias"}, {"andes", "andes"},
}};
constexpr std::array<Text, 8> AFTER_PLURAL = {"inning",  "outing",  "canning", "herring",
                                              "earring", "proceed", "exceed",  "succeed"};

inline Letters stem(Letters word) {
  for (const Rule& rule : WHOLE) {
    if (is(word, rule.suffix)) return with(word, 0, rule.by);
  }
  if (word.size() <= 2) return word;
  if (word[0] == '\'') word.erase(0, 1);
  mark_consonant_y(word);
  const Regions regions = regions_of(word);
  word = without_plural(without_possessive(word));
  for (const Text whole : AFTER_PLURAL) {
    if (is(word, whole)) return word;
  }
  word = without_past_and_gerund(word, regions.first);
  end_with_i(word);
  word = replaced(word, STEP_2, regions.first, regions.second);
  word = replaced(word, STEP_3, regions.first, regions.second);
  word = replaced(word, STEP_4, regions.second, regions.second);
  word = without_final_letter(word, regions);
  std::replace(word.begin(), word.end(), U'Y', U'y');
  return word;
}

}  // namespace caplore::meteor
