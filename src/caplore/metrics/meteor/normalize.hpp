// normalize.py for lines of ASCII: the same replacements in the same order. Other lines are left to Python.
#pragma once
#include "strings.hpp"

namespace caplore::meteor {

// Words whose period ends no sentence, some of them only before a number.
class Prefixes {
 public:
  explicit Prefixes(Text lines) {
    split(lines, '\n', [this](Text line) {
      if (!line.empty() && line[0] != '#') add(line);
    });
  }

  bool keep_period(Text word, Text following) const {
    const char first = following.empty() ? ' ' : following[0];
    const int32_t number = words_.find(word);
    const bool listed = number != NONE, numeric = listed && numeric_[static_cast<size_t>(number)];
    if (first >= 'a' && first <= 'z') return true;
    return listed && (!numeric || (first >= '0' && first <= '9'));
  }

 private:
  void add(Text line) {
    std::vector<Text> fields;
    split_words(line, " \t\n\v\f\r", [&](Text field) { fields.push_back(field); });
    if (fields.empty()) return;
    const auto number = static_cast<size_t>(words_.add(fields[0]));
    if (number == numeric_.size()) numeric_.push_back(false);
    numeric_[number] = fields.size() > 1 && fields[1] == "#NUMERIC_ONLY#";
  }

  Dictionary words_;
  std::vector<bool> numeric_;
};

constexpr char DOT = '\x80';  // a dot of an ellipsis, while dots at word ends are looked at; not ASCII

inline bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
inline bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return is_lower(c) || is_capital(c) || c == DOT; }
inline bool is_other_than_digit(char c) { return !is_digit(c); }
inline bool is_other_than_letter(char c) { return !is_letter(c); }
inline bool is_digit_or_letter(char c) { return is_digit(c) || is_letter(c); }

inline bool is_ascii(Text line) {
  return std::all_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

class Normalizer {
 public:
  explicit Normalizer(Text prefixes) : prefixes_(prefixes) {}

  // The words of an ASCII line, with spaces between them.
  std::string operator()(Text line) const {
    std::string made(line);
    if (!std::all_of(line.begin(), line.end(), [](char c) { return is_digit_or_letter(c) || c == ' '; })) {
      made = without_final_periods(replaced(signs_apart(line)));
    }
    for (char& c : made) c = c == DOT ? '.' : is_capital(c) ? static_cast<char>(c - 'A' + 'a') : c;
    return made;
  }

 private:
  static std::string signs_apart(Text line) {
    std::string made = " ";
    for (size_t at = 0; at < line.size();) {
      const size_t dots = std::min(line.find_first_not_of('.', at), line.size()) - at;
      if (dots > 1) {
        made.append(" ").append(dots, DOT).append(" ");
      } else if (is_digit_or_letter(line[at]) || Text(" \t\n\v\f\r.'`,-").find(line[at]) != Text::npos) {
        made += line[at];
      } else {
        made.append(" ").append(1, line[at]).append(" ");
      }
      at += std::max<size_t>(dots, 1);
    }
    return made + " ";
  }

  static std::string replaced(std::string line) {
    between(line, is_other_than_digit, ',', is_other_than_digit, " , ");
    between(line, is_digit, ',', is_other_than_digit, " , ");
    between(line, is_other_than_digit, ',', is_digit, " , ");
    std::replace(line.begin(), line.end(), '`', '\'');
    doubled(line, '\'', " \" ");
    doubled(line, '-', "-");
    between(line, [](char c) { return is_digit_or_letter(c) || c == '.'; }, '-', is_digit_or_letter, " ");
    between(line, is_other_than_letter, '\'', is_other_than_letter, " ' ");
    between(line, [](char c) { return !is_digit_or_letter(c); }, '\'', is_letter, " ' ");
    between(line, is_letter, '\'', is_other_than_letter, " ' ");
    between(line, is_letter, '\'', is_letter, " '");
    between(line, is_digit, '\'', [](char c) { return c == 's'; }, " '");
    return line;
  }

  // What `sub` of Python makes of (left)middle(right): a right neighbour is not the left one of the next.
  template <typename Left, typename Right>
  static void between(std::string& line, Left left, char middle, Right right, Text by) {
    if (line.find(middle) == std::string::npos) return;
    std::string made;
    for (size_t at = 0; at < line.size(); ++at) {
      made += line[at];
      if (at + 2 >= line.size() || line[at + 1] != middle) continue;
      if (!left(line[at]) || !right(line[at + 2])) continue;
      made.append(by) += line[at + 2];
      at += 2;
    }
    line = std::move(made);
  }

  static void doubled(std::string& line, char sign, Text by) {
    const std::string two(2, sign);
    for (size_t at = 0; (at = line.find(two, at)) != std::string::npos; at += by.size()) {
      line.replace(at, 2, by);
    }
  }

  // Acronyms lose their dots; other words only where a sentence may end.
  std::string without_final_periods(Text line) const {
    std::vector<Text> words;
    split_words(line, " \t\n\r\f", [&](Text word) { words.push_back(word); });
    std::string made;
    for (size_t i = 0; i < words.size(); ++i) {
      add_word(made, words[i], i + 1 < words.size() ? words[i + 1] : Text());
      made += ' ';
    }
    return made;
  }

  void add_word(std::string& made, Text word, Text following) const {
    const Text base = word.substr(0, word.size() - 1);
    if (word.size() == 1 || word.back() != '.') {
      made.append(word);
    } else if (base.find('.') != Text::npos && std::any_of(base.begin(), base.end(), is_letter)) {
      std::copy_if(word.begin(), word.end(), std::back_inserter(made), [](char c) { return c != '.'; });
    } else {
      made.append(base).append(prefixes_.keep_period(base, following) ? "." : " .");
    }
  }

  Prefixes prefixes_;
};

}  // namespace caplore::meteor
