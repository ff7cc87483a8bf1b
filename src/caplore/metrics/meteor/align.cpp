// METEOR's counts, compiled: what normalize.py, stem.py, words.py, align.py and `_counts` give, with the same
// numbers. Those files define it and say why; here it is done with words as numbers.
//
// A line becomes a sentence of learned words and the phrases in it (lexicon.hpp); a pair of sentences gives its
// options and the matches that are settled; the best set of the others is searched (search.hpp). Every thread
// learns words and phrases of its own, straight from the mapped tables: threads share nothing that changes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "../../native.hpp"
#include "lexicon.hpp"
#include "search.hpp"

namespace caplore::meteor {
namespace {

constexpr int COLUMNS = 21;

// Where the words of a sentence that paraphrases know stand in it.
class Places {
 public:
  void read(View<int32_t> numbers, const Lexicon& lexicon) {
    for (const int32_t word : words_) {
      if (word != NONE) first_[static_cast<size_t>(word)] = NONE;
    }
    words_.clear();
    bits_ = 0;
    for (const int32_t number : numbers) words_.push_back(lexicon.word(number).in_table);
    next_.assign(words_.size(), NONE);
    for (size_t place = words_.size(); place-- > 0;) {
      if (words_[place] == NONE) continue;
      int32_t& first = first_[static_cast<size_t>(words_[place])];
      next_[place] = first;
      first = static_cast<int32_t>(place);
      bits_ |= bit_of(words_[place]);
    }
  }

  // Calls `each` with every place where the paraphrase stands.
  template <typename Each>
  void find(const Paraphrase& paraphrase, const Lexicon& lexicon, Each each) const {
    if ((bits_ & bit_of(paraphrase.first)) == 0) return;
    int32_t place = first_[paraphrase.first];
    for (; place != NONE; place = next_[static_cast<size_t>(place)]) {
      if (stands_at(static_cast<size_t>(place), paraphrase, lexicon)) each(place);
    }
  }

 private:
  bool stands_at(size_t place, const Paraphrase& paraphrase, const Lexicon& lexicon) const {
    if (place + paraphrase.size > words_.size()) return false;
    for (size_t i = 1; i < paraphrase.size; ++i) {
      if (words_[place + i] != lexicon.word_of(paraphrase, i)) return false;
    }
    return true;
  }

  std::vector<int32_t> first_ = std::vector<int32_t>(1 << 16, NONE);  // by word
  std::vector<int32_t> next_;                                         // the same word again, by place
  std::vector<int32_t> words_;
  uint64_t bits_ = 0;  // of the words: most paraphrases begin with none of them
};

// The alignment of a caption with one reference after the other.
class Aligner {
 public:
  explicit Aligner(const Lexicon& lexicon) : lexicon_(lexicon) {}

  void begin(const Sentence& caption) {
    caption_ = caption;
    own_.clear();
    own_bits_ = own_stem_bits_ = 0;
    for (const int32_t number : lexicon_.numbers(caption)) {
      own_.push_back(&lexicon_.word(number));
      own_bits_ |= bit_of(number);
      own_stem_bits_ |= bit_of(own_.back()->stem);
    }
    own_places_.read(lexicon_.numbers(caption), lexicon_);
  }

  // The matches of the best alignment, from left to right in the reference.
  const std::vector<Match>& align(const Sentence& reference) {
    const auto words = lexicon_.numbers(reference), own = lexicon_.numbers(caption_);
    const bool equal = std::equal(words.begin(), words.end(), own.begin(), own.end());
    clear_options(words.size());
    for (size_t start = 0; start < words.size(); ++start) {
      add_words(start, lexicon_.word(words[start]), equal);
    }
    if (!equal) add_paraphrases(reference);
    matches_.clear();
    if (settle(words.size())) {
      for (const Match* match : settled_) {
        if (match != nullptr) matches_.push_back(*match);
      }
    } else if (words.size() + own.size() <= 64) {
      few_.run(options_, settled_, words.size(), own.size(), matches_);
    } else {
      many_.run(options_, settled_, words.size(), own.size(), matches_);
    }
    return matches_;
  }

 private:
  void clear_options(size_t places) {
    if (options_.size() < places) options_.resize(places);
    for (size_t i = 0; i < places; ++i) options_[i].clear();
  }

  // The matches of one word of the reference, exact ones first, then by stem, then by synonym set.
  void add_words(size_t start, const Word& word, bool only_exact) {
    const auto add = [&](Module module, auto matches) {
      for (size_t i = 0; i < own_.size(); ++i) {
        if (!matches(*own_[i])) continue;
        options_[start].push_back({static_cast<int32_t>(start), 1, static_cast<int32_t>(i), 1, module});
      }
    };
    if (own_bits_ & bit_of(word.number)) {
      add(EXACT, [&](const Word& own) { return own.number == word.number; });
    }
    if (only_exact) return;
    if (own_stem_bits_ & bit_of(word.stem)) {
      add(STEM, [&](const Word& own) { return own.stem == word.stem && own.number != word.number; });
    }
    if (own_bits_ & word.near_bits) {
      add(SYNONYM, [&](const Word& own) { return lexicon_.synonyms(own, word); });
    }
  }

  // The matches of phrases: paraphrases of the reference's that the caption says, then the other way round.
  void add_paraphrases(const Sentence& reference) {
    places_.read(lexicon_.numbers(reference), lexicon_);
    const auto add = [&](int32_t start, int32_t length, int32_t own, int32_t own_length) {
      options_[static_cast<size_t>(start)].push_back({start, length, own, own_length, PARAPHRASE});
    };
    for (const PhrasePlace& phrase : lexicon_.phrases(reference)) {
      for (const Paraphrase& said : lexicon_.paraphrases(phrase)) {
        own_places_.find(said, lexicon_, [&](int32_t own) {
          add(phrase.start, phrase.length, own, said.size);
        });
      }
    }
    for (const PhrasePlace& phrase : lexicon_.phrases(caption_)) {
      for (const Paraphrase& said : lexicon_.paraphrases(phrase)) {
        places_.find(said, lexicon_, [&](int32_t start) {
          add(start, said.size, phrase.start, phrase.length);
        });
      }
    }
  }

  // Finds matches that nothing competes with: the only one for each word on both sides. True where that is all
  // there is.
  bool settle(size_t places) {
    covered_.assign(places, 0);
    own_covered_.assign(own_.size(), 0);
    for (size_t place = 0; place < places; ++place) {
      for (const Match& match : options_[place]) {
        for (int32_t i = 0; i < match.length; ++i) ++covered_[static_cast<size_t>(match.start + i)];
        for (int32_t i = 0; i < match.own_length; ++i) ++own_covered_[static_cast<size_t>(match.own + i)];
      }
    }
    settled_.assign(places, nullptr);
    bool all = true;
    for (size_t place = 0; place < places; ++place) {
      if (options_[place].size() == 1 && alone(options_[place][0])) settled_[place] = &options_[place][0];
      all = all && (settled_[place] != nullptr || options_[place].empty());
    }
    return all;
  }

  bool alone(const Match& match) const {
    const auto once = [](const std::vector<int32_t>& covered, int32_t begin, int32_t length) {
      const auto first = covered.begin() + begin;
      return std::all_of(first, first + length, [](int32_t times) { return times == 1; });
    };
    return once(covered_, match.start, match.length) && once(own_covered_, match.own, match.own_length);
  }

  const Lexicon& lexicon_;
  Sentence caption_;
  std::vector<const Word*> own_;
  uint64_t own_bits_ = 0, own_stem_bits_ = 0;  // of the caption: no bit, no match
  Places own_places_, places_;
  Options options_;
  Settled settled_;
  std::vector<int32_t> covered_, own_covered_;
  std::vector<Match> matches_;
  Search<Few> few_;
  Search<Many> many_;
};

// --- counts (`_counts` in __init__.py) ---------------------------------------------------------------------

void count(const Lexicon& lexicon, const Sentence& caption, const Sentence& reference,
           const std::vector<Match>& matches, int32_t* counts) {
  const auto own = lexicon.numbers(caption), words = lexicon.numbers(reference);
  counts[0] = static_cast<int32_t>(own.size());
  counts[1] = static_cast<int32_t>(words.size());
  counts[2] = caption.functions;
  counts[3] = reference.functions;
  int32_t& chunks = counts[COLUMNS - 1];
  int32_t end = NONE, own_end = NONE, matched = 0, own_matched = 0;
  for (const Match& match : matches) {
    int32_t* const column = counts + 4 + 4 * match.module;
    for (int32_t i = match.own; i < match.own + match.own_length; ++i) {
      ++column[lexicon.word(own[static_cast<size_t>(i)]).is_function ? 2 : 0];
    }
    for (int32_t i = match.start; i < match.start + match.length; ++i) {
      ++column[lexicon.word(words[static_cast<size_t>(i)]).is_function ? 3 : 1];
    }
    own_matched += match.own_length;
    matched += match.length;
    chunks += match.start != end || match.own != own_end;
    end = match.start + match.length;
    own_end = match.own + match.own_length;
  }
  if (chunks == 1 && counts[0] == own_matched && counts[1] == matched) chunks = 0;
}

// --- lines of Python ---------------------------------------------------------------------------------------

// The lines of every caption and its references, one after the other in one piece of memory.
class Captions {
 public:
  // `normal` gives the bytes of a line's words with spaces between them, where the line is not ASCII.
  Captions(PyObject* candidates, PyObject* references, PyObject* normal) : normal_(normal) {
    for_each(candidates, [&](PyObject* candidate, Py_ssize_t i) {
      first_line_.push_back(ends_.size());
      add(candidate);
      const Owned others = owned(PySequence_GetItem(references, i));
      for_each(others.get(), [&](PyObject* reference, Py_ssize_t) { add(reference); });
    });
    first_line_.push_back(ends_.size());
  }

  size_t size() const { return first_line_.size() - 1; }
  size_t pairs() const { return first_line_.back() - size(); }
  // The line of a caption; those of its references follow, up to the line of the next.
  size_t first_line(size_t caption) const { return first_line_[caption]; }
  size_t first_pair(size_t caption) const { return first_line_[caption] - caption; }
  Text line(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return Text(text_).substr(begin, ends_[i] - begin);
  }
  // Whether a line has yet to be normalised.
  bool is_raw(size_t i) const { return raw_[i]; }

 private:
  template <typename Each>
  static void for_each(PyObject* sequence, Each each) {
    const Py_ssize_t size = PySequence_Size(sequence);
    if (size < 0) throw PythonError();
    for (Py_ssize_t i = 0; i < size; ++i) each(owned(PySequence_GetItem(sequence, i)).get(), i);
  }

  void add(PyObject* line) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(line, &size);
    if (text == nullptr) {  // a lone surrogate
      if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw PythonError();
      PyErr_Clear();
    }
    const bool ascii = text != nullptr && PyUnicode_GetLength(line) == size;
    if (ascii) {
      text_.append(text, static_cast<size_t>(size));
    } else {
      add_normalised(line);
    }
    raw_.push_back(ascii);
    ends_.push_back(text_.size());
  }

  void add_normalised(PyObject* line) {
    const Owned made = owned(PyObject_CallFunctionObjArgs(normal_, line, nullptr));
    char* text = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(made.get(), &text, &size) != 0) throw PythonError();
    text_.append(text, static_cast<size_t>(size));
  }

  PyObject* normal_;
  std::string text_;
  std::vector<size_t> ends_, first_line_;
  std::vector<bool> raw_;
};

// One thread's part of the work.
class Worker {
 public:
  Worker(const Tables& tables, const Captions& captions)
      : tables_(tables), captions_(captions), lexicon_(tables), aligner_(lexicon_) {}

  // Writes the counts of a caption with each of its references.
  void run(size_t caption, int32_t* counts) {
    read(caption);
    aligner_.begin(sentences_[0]);
    int32_t* row = counts + captions_.first_pair(caption) * COLUMNS;
    for (size_t i = 1; i < sentences_.size(); ++i, row += COLUMNS) {
      count(lexicon_, sentences_[0], sentences_[i], aligner_.align(sentences_[i]), row);
    }
  }

 private:
  // References come again for the next caption of an image: a line that stands where it stood is read once.
  void read(size_t caption) {
    const size_t first = captions_.first_line(caption), size = captions_.first_line(caption + 1) - first;
    const size_t known = sentences_.size();
    sentences_.resize(size);
    for (size_t i = 0; i < size; ++i) {
      const Text line = captions_.line(first + i);
      if (i >= known || !same(first + i, first_ + i)) {
        sentences_[i] = lexicon_.read(captions_.is_raw(first + i) ? Text(tables_.normal(line)) : line);
      }
    }
    first_ = first;
  }

  bool same(size_t line, size_t other) const {
    return captions_.is_raw(line) == captions_.is_raw(other) && captions_.line(line) == captions_.line(other);
  }

  const Tables& tables_;
  const Captions& captions_;
  Lexicon lexicon_;
  Aligner aligner_;
  std::vector<Sentence> sentences_;  // of the caption at hand and its references
  size_t first_ = 0;                 // the line of the first of them
};

// Asks Python some times a second whether to go on, in the thread that Python called.
class Asking {
 public:
  Asking(WithoutGil& free, PyObject* go_on) : free_(free), go_on_(go_on) {}

  // Throws what Ctrl-C or `go_on` raised.
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    if (!free_.with_gil([this] { return PyErr_CheckSignals() == 0 && agrees(); })) throw PythonError();
  }

 private:
  bool agrees() const {
    if (go_on_ == Py_None) return true;
    PyObject* const answer = PyObject_CallFunctionObjArgs(go_on_, nullptr);
    Py_XDECREF(answer);
    return answer != nullptr;
  }

  WithoutGil& free_;
  PyObject* const go_on_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Takes captions, a few at a time, until none is left or an error ends the work. `ask` is called between them.
template <typename Ask>
void work(const Tables& tables, const Captions& captions, std::atomic<size_t>& taken,
          const std::atomic<bool>& ended, int32_t* counts, Ask ask) {
  constexpr size_t AT_ONCE = 32;
  Worker worker(tables, captions);
  for (size_t first; (first = taken.fetch_add(AT_ONCE)) < captions.size();) {
    const size_t last = std::min(first + AT_ONCE, captions.size());
    for (size_t i = first; i < last && !ended; ++i) {
      worker.run(i, counts);
      ask();
    }
    if (ended) return;
  }
}

// `here` in this thread, `there` in others beside it; the first error of any ends all and is thrown here.
template <typename Here, typename There>
void in_threads(int64_t threads, std::atomic<bool>& ended, Here here, There there) {
  std::exception_ptr error;
  std::mutex guard;
  const auto safely = [&](auto& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard);
      if (!error) error = std::current_exception();
      ended = true;
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < threads; ++i) others.emplace_back([&] { safely(there); });
  } catch (const std::exception&) {
    // no more threads to be had: those there are do it
  }
  safely(here);
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

// --- what Python calls -------------------------------------------------------------------------------------

constexpr const char* TABLES = "caplore.metrics.meteor._align.Tables";

PyObject* tables(PyObject*, PyObject* arrays) {
  return guarded([&] {
    auto made = std::make_unique<Tables>(arrays);
    PyObject* capsule = PyCapsule_New(made.get(), TABLES, [](PyObject* self) {
      delete static_cast<Tables*>(PyCapsule_GetPointer(self, TABLES));
    });
    if (capsule == nullptr) throw PythonError();
    made.release();
    return capsule;
  });
}

PyObject* counts(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject *capsule, *candidates, *references, *normal, *go_on;
    Py_ssize_t threads;
    if (!PyArg_ParseTuple(arguments, "OOOOnO", &capsule, &candidates, &references, &normal, &threads,
                          &go_on)) {
      throw PythonError();
    }
    const auto* tables = static_cast<const Tables*>(PyCapsule_GetPointer(capsule, TABLES));
    if (tables == nullptr) throw PythonError();
    const Captions captions(candidates, references, normal);
    std::vector<int32_t> made(captions.pairs() * COLUMNS);
    {
      WithoutGil free;
      std::atomic<size_t> taken{0};
      std::atomic<bool> ended{false};
      const auto some = [&](auto ask) { work(*tables, captions, taken, ended, made.data(), ask); };
      in_threads(threads, ended, [&] { some(Asking(free, go_on)); }, [&] { some([] {}); });
    }
    return bytes_of(made);
  });
}

PyObject* stem_of(PyObject*, PyObject* word) {
  return guarded([&] {
    const Owned bytes = owned(PyUnicode_AsEncodedString(word, "utf-8", "surrogatepass"));
    const auto size = static_cast<size_t>(PyBytes_Size(bytes.get()));
    const Letters made = stem(decoded({PyBytes_AsString(bytes.get()), size}));
    int order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? -1 : 1;
    const auto length = static_cast<Py_ssize_t>(made.size() * sizeof(char32_t));
    return PyUnicode_DecodeUTF32(reinterpret_cast<const char*>(made.data()), length, "surrogatepass", &order);
  });
}

PyMethodDef METHODS[] = {
    {"tables", tables, METH_O, "The tables, ready to be looked up; they are read where words need them."},
    {"counts", counts, METH_VARARGS, "The counts of each caption with each of its references: bytes of int32."},
    {"stem", stem_of, METH_O, "The stem of a lower-case word."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_align", "METEOR's counts, compiled.", 0, METHODS, nullptr,
                      nullptr,               nullptr,  nullptr};

}  // namespace
}  // namespace caplore::meteor

PyMODINIT_FUNC PyInit__align() { return caplore::module_of(caplore::meteor::MODULE); }
