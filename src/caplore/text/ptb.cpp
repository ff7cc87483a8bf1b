// The plain pieces of captions, read many times as fast as by the rules of ptb.py, which say what is right.
//
// A caption is vouched for if each of its pieces (what stands between spaces) has one of a few shapes.
// Its words are then those the rules would give: tests/text compares them. Other captions go to Python.
// A shape is here because captions are full of it, and no rule reads more of it, or its neighbours with it.
#include "../native.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace {

using caplore::Owned;
using caplore::owned;
using caplore::PythonError;
using std::string_view;

// Line breaks inside a caption are spaces, as in coco-caption. A tab is none: some rules tell the two apart.
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\v' || c == '\f' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A letter in lower case or a digit; 0 for any other character.
constexpr std::array<char, 256> make_lower() {
  std::array<char, 256> lower{};
  for (char c = 'a'; c <= 'z'; ++c) lower[c] = lower[c - 'a' + 'A'] = c;
  for (char c = '0'; c <= '9'; ++c) lower[c] = c;
  return lower;
}
constexpr auto kLower = make_lower();

char lower(char c) { return kLower[static_cast<uint8_t>(c)]; }
bool is_alphanumeric(char c) { return lower(c) != 0; }
bool is_letter(char c) { return is_alphanumeric(c) && !is_digit(c); }

// A few words in lower case. Nearly every word asked for is refused by its first letter and length.
class WordSet {
 public:
  explicit WordSet(string_view words) {
    for (size_t at = 0; at < words.size();) {
      const size_t end = std::min(words.find_first_of(" \n", at), words.size());
      if (end > at) words_.emplace_back(words.substr(at, end - at));
      at = end + 1;
    }
    std::sort(words_.begin(), words_.end());
    for (const auto& word : words_) lengths_[static_cast<uint8_t>(word[0])] |= bit(word.size());
  }
  bool has(string_view word) const {
    if (!(lengths_[static_cast<uint8_t>(word[0])] & bit(word.size()))) return false;
    return std::binary_search(words_.begin(), words_.end(), word);
  }

 private:
  static uint64_t bit(size_t length) { return uint64_t{1} << (length & 63); }
  std::vector<std::string> words_;
  std::array<uint64_t, 256> lengths_{};
};

// Reads captions; behind a true `read`, `text` holds the words with a space between them.
class Reader {
 public:
  Reader(string_view run_together, string_view abbreviations)
      : run_together_(run_together), abbreviations_(abbreviations) {}

  // Behind the caption must be a NUL, which ends every shape, so that none need look for the end.
  bool read(string_view caption) {
    if (text_.size() < 2 * caption.size()) text_.resize(2 * caption.size());  // "a,b" becomes "a b "
    out_ = text_.data();
    at_ = caption.data();
    end_ = at_ + caption.size();
    char before = ' ';  // the last character of the piece before; a space if there is none
    while (true) {
      while (is_space(*at_)) ++at_;
      if (at_ == end_) return true;
      const char* begin = at_;
      if (!piece(before) || at_ - begin > kLongest) return false;
      before = at_[-1];
    }
  }
  // A space ends each word but the last.
  string_view text() const {
    const auto size = static_cast<size_t>(out_ - text_.data());
    return string_view(text_).substr(0, size ? size - 1 : 0);
  }

 private:
  static constexpr ptrdiff_t kLongest = 64;  // as in ptb.py's _LEANS

  bool piece(char before) {
    if (is_letter(*at_)) return core() && tail();
    if (lone_sign()) return true;
    take('"');
    if (is_alphanumeric(*at_) && (leans_on(before) || !core())) return false;
    return tail();
  }

  // Three digits may be the second half of a phone number, if digits or a parenthesis stand before them.
  bool leans_on(char before) const {
    return is_digit(at_[0]) && is_digit(at_[1]) && is_digit(at_[2]) && before != ' ' && !is_letter(before);
  }

  // A dash is dropped; an ampersand is a word, and so is the 's of captions that were tokenised before.
  bool lone_sign() {
    const char* begin = at_;
    if (take('-') && piece_ends()) return true;
    at_ = begin;
    if ((take('&') || (take('\'') && take('s'))) && piece_ends()) {
      out_ = std::copy(begin, at_, out_);
      end_word();
      return true;
    }
    at_ = begin;
    return false;
  }

  // Words and numbers, perhaps with signs between them.
  bool core() {
    const char* begin = at_;
    char* word = out_;
    run();
    if ((*at_ == ',' || *at_ == '.' || *at_ == '/' || *at_ == ':') && is_alphanumeric(at_[1])) {
      return joined(is_digit(*begin), begin, word);
    }
    while (next_part('-')) {
      put(*at_++);
      run();
    }
    return plain(word);
  }

  // One word, which may have hyphens, perhaps with 's behind it.
  bool plain(char* word) {
    const bool owns = at_[0] == '\'' && at_[1] == 's';
    if (!stands_alone(word, owns || *at_ == '.')) return false;
    end_word();
    if (owns) {
      put(*at_++);
      put(*at_++);
      end_word();
    }
    return true;
  }

  // Parts of letters only, or of digits only, with one and the same sign between them.
  bool joined(bool digits, const char* begin, char* word) {
    if (!all_are(digits, begin)) return false;
    if (digits) return number();
    if (*at_ == ',') return listed(word);
    if (*at_ == '.') return dotted(at_ - begin == 1, word);
    return *at_ == '/' && either();  // with a colon it could be a smiley
  }

  // "10:30" and "1,000" are one word. With other signs it could be a phone number, a fraction or a date.
  bool number() {
    const char sign = *at_;
    if (sign != ':' && sign != ',') return false;
    while (next_part(sign)) {
      if (!part(true)) return false;
    }
    end_word();
    return true;
  }

  // "red,white,blue": the comma ends a word.
  bool listed(char* word) {
    while (next_part(',')) {
      if (!stands_alone(word, false)) return false;
      word = out_ + 1;
      if (!part(false)) return false;
      word[-1] = ' ';
    }
    if (!stands_alone(word, *at_ == '.')) return false;
    end_word();
    return true;
  }

  // "street.a" is one word; so is "t.v.", and with its last period, as all its parts are initials.
  bool dotted(bool initials, char* word) {
    while (next_part('.')) {
      if (!initials && !stands_alone(word, true)) return false;
      const char* begin = at_ + 1;
      if (!part(false)) return false;
      initials = initials && at_ - begin == 1;
    }
    if (initials && *at_ == '.') {
      put(*at_++);
      end_word();
      return piece_ends();
    }
    if (!stands_alone(word, *at_ == '.')) return false;
    end_word();
    return true;
  }

  // "and/or" is one word, and so are three with slashes; four are not.
  bool either() {
    int parts = 1;
    for (; next_part('/'); ++parts) {
      if (!part(false)) return false;
    }
    end_word();
    return parts <= 3;
  }

  bool next_part(char sign) const { return *at_ == sign && is_alphanumeric(at_[1]); }
  bool part(bool digits) {
    put(*at_++);
    const char* begin = at_;
    run();
    return all_are(digits, begin);
  }
  bool all_are(bool digits, const char* begin) const {
    return std::all_of(begin, at_, [=](char c) { return is_digit(c) == digits; });
  }

  // "cannot" is two words, and abbreviations keep the period behind them, or ask what is behind that.
  bool stands_alone(const char* word, bool may_be_abbreviated) const {
    const string_view found(word, static_cast<size_t>(out_ - word));
    return !run_together_.has(found) && !(may_be_abbreviated && abbreviations_.has(found));
  }

  // Marks and quotes behind a word are dropped. Not any row of them: "?!" is a word, so is "end." in "end.,".
  bool tail() {
    marks();
    if (take('"')) marks();
    return piece_ends();
  }
  void marks() {
    if (*at_ == ',' || *at_ == '!' || *at_ == '?' || *at_ == ';' || *at_ == ':') {
      ++at_;
    } else {
      while (take('.')) {
      }
    }
  }

  bool piece_ends() const { return is_space(*at_) || at_ == end_; }
  bool take(char c) {
    if (*at_ != c || at_ == end_) return false;
    ++at_;
    return true;
  }

  // Letters and digits, as many as there are. In copies, as for the compiler a char stored may be any member.
  void run() {
    const char* at = at_;
    char* out = out_;
    while (const char c = lower(*at)) {
      *out++ = c;
      ++at;
    }
    at_ = at;
    out_ = out;
  }
  void put(char c) { *out_++ = c; }
  void end_word() { put(' '); }

  WordSet run_together_, abbreviations_;
  std::string text_;
  char* out_ = text_.data();   // where the next character of the words goes
  const char* at_ = nullptr;   // the next character of the caption
  const char* end_ = nullptr;  // the end of the caption
};

PyObject* string_of(string_view text) {
  return owned(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()))).release();
}

string_view utf8_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw PythonError();
  return {data, static_cast<size_t>(size)};
}

// One Python string for each word, however often it comes: a corpus has hundreds of times as many as words.
class Words {
 public:
  Words() : slots_(1 << 12) {}
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words() {
    for (const Slot& slot : slots_) Py_XDECREF(slot.object);
  }

  // A borrowed reference.
  PyObject* get(string_view word, uint64_t hash) {
    Slot& slot = find(word, hash);
    if (slot.object != nullptr) return slot.object;
    PyObject* made = string_of(word);
    slot = {utf8_of(made), hash, made};  // the string's own bytes, for as long as it lives
    if (++used_ * 2 > slots_.size()) grow();
    return made;
  }

 private:
  struct Slot {
    string_view word;
    uint64_t hash = 0;
    PyObject* object = nullptr;
  };
  Slot& find(string_view word, uint64_t hash) {
    const size_t mask = slots_.size() - 1;
    size_t at = hash >> 32 & mask;
    while (slots_[at].object != nullptr && !(slots_[at].hash == hash && slots_[at].word == word)) {
      at = (at + 1) & mask;
    }
    return slots_[at];
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.object != nullptr) find(slot.word, slot.hash) = slot;
    }
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

// The words of a text: one pass finds where each ends and its hash.
PyObject* list_of(string_view text, Words& words) {
  const auto count = text.empty() ? 0 : std::count(text.begin(), text.end(), ' ') + 1;
  Owned list = owned(PyList_New(static_cast<Py_ssize_t>(count)));
  const char* at = text.data();
  const char* end = at + text.size();
  for (Py_ssize_t i = 0; i < count; ++i, ++at) {
    const char* begin = at;
    uint64_t hash = 0;
    for (; at != end && *at != ' '; ++at) hash = (hash + static_cast<uint8_t>(*at)) * 0x9E3779B97F4A7C15u;
    PyObject* word = words.get({begin, static_cast<size_t>(at - begin)}, hash);
    Py_INCREF(word);
    PyList_SetItem(list.get(), i, word);
  }
  return list.release();
}

// The UTF-8 of a caption; none for one with a lone surrogate.
bool utf8_of(PyObject* caption, string_view& text) {
  try {
    text = utf8_of(caption);
    return true;
  } catch (const PythonError&) {
    if (!PyUnicode_Check(caption)) PyErr_Format(PyExc_TypeError, "a caption is %R, not a text", caption);
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw;
    PyErr_Clear();
    return false;
  }
}

// What `make` makes of the words of each caption, None where nothing is vouched for; and where that is.
template <typename Make>
PyObject* read_all(PyObject* captions, Reader& reader, Make make) {
  const Py_ssize_t count = PyList_Size(captions);
  const Owned read = owned(PyList_New(count)), left = owned(PyList_New(0));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* caption = PyList_GetItem(captions, i);
    if (caption == nullptr) throw PythonError();
    string_view text;
    if (utf8_of(caption, text) && reader.read(text)) {
      PyList_SetItem(read.get(), i, make(reader.text()));
      continue;
    }
    Py_INCREF(Py_None);
    PyList_SetItem(read.get(), i, Py_None);
    const Owned place = owned(PyLong_FromSsize_t(i));
    if (PyList_Append(left.get(), place.get()) != 0) throw PythonError();
  }
  return owned(PyTuple_Pack(2, read.get(), left.get())).release();
}

struct Arguments {
  PyObject* captions;
  Reader reader;
};

Arguments parsed(PyObject* arguments) {
  PyObject* captions = nullptr;
  const char *run_together = nullptr, *abbreviations = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!ss", &PyList_Type, &captions, &run_together, &abbreviations)) {
    throw PythonError();
  }
  return {captions, Reader(run_together, abbreviations)};
}

PyObject* lines(PyObject*, PyObject* arguments) {
  return caplore::guarded([&] {
    Arguments given = parsed(arguments);
    return read_all(given.captions, given.reader, string_of);
  });
}

PyObject* lists(PyObject*, PyObject* arguments) {
  return caplore::guarded([&] {
    Arguments given = parsed(arguments);
    Words words;
    return read_all(given.captions, given.reader, [&](string_view text) { return list_of(text, words); });
  });
}

PyMethodDef methods[] = {
    {"lines", lines, METH_VARARGS, "The words of each caption as one line, or None; where None."},
    {"lists", lists, METH_VARARGS, "The words of each caption as a list, or None; where None."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_ptb", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__ptb() { return caplore::module_of(module); }
