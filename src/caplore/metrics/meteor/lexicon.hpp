// tables.py and words.py: the mapped tables, and words and phrases learned from them as captions bring them.
#pragma once
#include <memory>

#include "../../native.hpp"
#include "normalize.hpp"
#include "stem.hpp"
#include "strings.hpp"

namespace caplore::meteor {

// One array of the tables; its memory stays mapped as long as this lives.
template <typename T>
class Column {
 public:
  Column(PyObject* arrays, const char* name)
      : owner_(owned(PyMapping_GetItemString(arrays, name))), array_(owner_.get()) {}

  // Damaged tables may hold any number, so none is followed unseen.
  const T& operator[](uint64_t place) const {
    if (place >= size()) throw std::invalid_argument("METEOR's tables are damaged");
    return array_[static_cast<int64_t>(place)];
  }
  Text bytes(uint64_t place) const { return {reinterpret_cast<const char*>(&(*this)[place]), sizeof(T)}; }
  const T* begin() const { return array_.begin(); }
  const T* end() const { return array_.end(); }
  size_t size() const { return static_cast<size_t>(array_.size()); }

 private:
  Owned owner_;
  Array<T> array_;
};

class Lines : public Column<char> {
 public:
  using Column<char>::Column;
  Text text() const { return {begin(), size()}; }
};

struct Tables {
  explicit Tables(PyObject* arrays)
      : trie(arrays, "trie"),
        paraphrase_begins(arrays, "paraphrase_begins"),
        paraphrase_ends(arrays, "paraphrase_ends"),
        paraphrase_words(arrays, "paraphrase_words"),
        synonym_begins(arrays, "synonym_begins"),
        synonym_sets(arrays, "synonym_sets"),
        word_lines(arrays, "words"),
        synonym_lines(arrays, "synonym_words"),
        function_lines(arrays, "function_words"),
        form_lines(arrays, "forms"),
        prefix_lines(arrays, "prefixes"),
        words(word_lines.text()),
        synonyms(synonym_lines.text()),
        functions(function_lines.text()),
        normal(prefix_lines.text()) {
    if (words.size() > 1 << 16) throw std::invalid_argument("METEOR's tables are damaged");
    Text base;
    bool is_base = true;  // a line with a base word, then one with its irregular forms
    split(form_lines.text(), '\n', [&](Text line) {
      if (is_base) {
        base = line;
      } else {
        split_words(line, " ", [&](Text form) { add_form(form, base); });
      }
      is_base = !is_base;
    });
  }

  Column<uint64_t> trie;
  Column<uint32_t> paraphrase_begins, paraphrase_ends;
  Column<uint16_t> paraphrase_words;
  Column<uint32_t> synonym_begins, synonym_sets;
  Lines word_lines, synonym_lines, function_lines, form_lines, prefix_lines;
  Dictionary words, synonyms, functions;
  Dictionary forms;
  std::vector<std::vector<Text>> bases;  // by number of the form
  Normalizer normal;

 private:
  void add_form(Text form, Text base) {
    const auto number = static_cast<size_t>(forms.add(form));
    if (number == bases.size()) bases.emplace_back();
    bases[number].push_back(base);
  }
};

template <typename Size>
struct Range {
  Size begin = 0, size = 0;
};
using Span = Range<size_t>;
using Part = Range<uint32_t>;  // of what the tables hold

template <typename T>
struct View {
  const T* first;
  size_t count;
  const T* begin() const { return first; }
  const T* end() const { return first + count; }
  size_t size() const { return count; }
  const T& operator[](size_t i) const { return first[i]; }
};

template <typename T, typename Size>
View<T> view(const std::vector<T>& values, Range<Size> range) {
  return {values.data() + range.begin, range.size};
}

struct Word {
  int32_t number;    // words are equal where this is
  int32_t stem;
  int32_t in_table;  // its number among the words of the paraphrases
  int32_t phrase;    // the phrase it is or begins
  bool is_function;
  uint64_t near_bits;  // a bit for each word that shares a synonym set with it: most words share none
};

inline uint64_t bit_of(int32_t number) { return uint64_t{1} << number % 64; }

// Its first word, how many it has, and where they stand in the table. Small, as it is mostly looked past.
struct Paraphrase {
  uint16_t first, size;
  uint32_t begin;
};

// A phrase, or the beginning of one.
struct Phrase {
  uint64_t state;
  Part next;         // its steps in the trie
  Part paraphrases;  // none where it only begins one
};

struct PhrasePlace {
  int32_t start, length;
  int32_t phrase;
};

struct Sentence {
  Span words, phrases;
  int32_t functions = 0;
};

// How irregular plurals and the like lead to a base word: the first of these that makes a word WordNet has.
constexpr std::array<Rule, 20> ENDINGS = {{
    {"s", ""},    {"ses", "s"}, {"xes", "x"}, {"zes", "z"}, {"ches", "ch"}, {"shes", "sh"}, {"men", "man"},
    {"ies", "y"}, {"s", ""},    {"ies", "y"}, {"es", "e"},  {"es", ""},     {"ed", "e"},    {"ed", ""},
    {"ing", "e"}, {"ing", ""},  {"er", ""},   {"est", ""},  {"er", "e"},    {"est", "e"},
}};

inline bool longer_than_two(Text word) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  return static_cast<ptrdiff_t>(word.size()) - std::count_if(word.begin(), word.end(), continues) > 2;
}

class Lexicon {
 public:
  explicit Lexicon(const Tables& tables) : tables_(tables), phrase_of_(tables.trie.size() + 1, NONE) {
    root_ = learn_phrase(0);
  }

  // The sentence of a line of words with spaces between them.
  Sentence read(Text line) {
    Sentence made;
    made.words.begin = numbers_.size();
    split_words(line, " ", [&](Text text) {
      const int32_t number = known_.add(text);
      if (static_cast<size_t>(number) == words_.size()) learn(text);
      numbers_.push_back(number);
      made.functions += word(number).is_function;
    });
    made.words.size = numbers_.size() - made.words.begin;
    made.phrases.begin = places_.size();
    for (size_t start = 0; start < made.words.size; ++start) find_phrases(made, start);
    made.phrases.size = places_.size() - made.phrases.begin;
    return made;
  }

  View<int32_t> numbers(const Sentence& of) const { return view(numbers_, of.words); }
  View<PhrasePlace> phrases(const Sentence& of) const { return view(places_, of.phrases); }
  View<Paraphrase> paraphrases(const PhrasePlace& of) const {
    return view(paraphrases_, learned_[static_cast<size_t>(of.phrase)].paraphrases);
  }
  const Word& word(int32_t number) const { return words_[static_cast<size_t>(number)]; }
  int32_t word_of(const Paraphrase& of, size_t i) const { return tables_.paraphrase_words[of.begin + i]; }

  // Whether two different words share a synonym set.
  bool synonyms(const Word& one, const Word& other) const {
    if ((one.near_bits & bit_of(other.number)) == 0) return false;
    const auto& near = near_[static_cast<size_t>(one.number)];
    return std::binary_search(near.begin(), near.end(), other.number);
  }

 private:
  static constexpr int STEP_BITS = 13;

  // What a word made of a phrase.
  struct Step {
    uint64_t asked = ~uint64_t{0};
    int32_t found = NONE;
  };

  // A word of a synonym set, and the one before it in that set.
  struct Member {
    int32_t word, before;
  };

  void learn(Text text) {
    Word word{};
    word.number = static_cast<int32_t>(words_.size());
    word.stem = number_of_stem(stem(decoded(text)));
    word.in_table = tables_.words.find(text);
    word.phrase = word.in_table == NONE ? NONE : next(root_, word.in_table);
    word.is_function = tables_.functions.find(text) != NONE;
    words_.push_back(word);
    near_.emplace_back();
    join_sets_of_bases(text);
    auto& near = near_.back();
    std::sort(near.begin(), near.end());
    near.erase(std::unique(near.begin(), near.end()), near.end());
    for (const int32_t other : near) {
      near_[static_cast<size_t>(other)].push_back(word.number);  // the highest number so far: it stays sorted
      words_[static_cast<size_t>(other)].near_bits |= bit_of(word.number);
      words_.back().near_bits |= bit_of(other);
    }
  }

  int32_t number_of_stem(const Letters& letters) {
    return stems_.add({reinterpret_cast<const char*>(letters.data()), letters.size() * sizeof(char32_t)});
  }

  // The newest word joins the synonym sets of its own and of the words it may be a form of.
  void join_sets_of_bases(Text word) {
    join_sets(word);
    const int32_t form = tables_.forms.find(word);
    if (form == NONE) return join_sets(base_of(word));
    for (const Text base : tables_.bases[static_cast<size_t>(form)]) join_sets(base);
  }

  void join_sets(Text word) {
    const int32_t number = tables_.synonyms.find(word);
    if (number == NONE) return;
    const auto row = static_cast<uint64_t>(number);
    for (uint64_t at = tables_.synonym_begins[row]; at < tables_.synonym_begins[row + 1]; ++at) {
      join_set(tables_.synonym_sets.bytes(at));
    }
  }

  void join_set(Text set) {
    const auto number = static_cast<size_t>(sets_.add(set));
    if (number == last_of_set_.size()) last_of_set_.push_back(NONE);
    const int32_t self = words_.back().number;
    int32_t& last = last_of_set_[number];
    for (int32_t at = last; at != NONE; at = members_[static_cast<size_t>(at)].before) {
      const int32_t other = members_[static_cast<size_t>(at)].word;
      if (other == self) return;  // by another base
      near_.back().push_back(other);
    }
    members_.push_back({self, last});
    last = static_cast<int32_t>(members_.size()) - 1;
  }

  Text base_of(Text word) {
    if (ends(word, "ss") || !longer_than_two(word)) return word;
    for (const Rule& rule : ENDINGS) {
      if (!ends(word, rule.suffix)) continue;
      base_.assign(word.substr(0, word.size() - rule.suffix.size())).append(rule.by);
      if (tables_.synonyms.find(base_) != NONE) return base_;
    }
    return "";
  }

  void find_phrases(const Sentence& of, size_t start) {
    const auto words = numbers(of);
    int32_t phrase = word(words[start]).phrase;
    for (size_t end = start + 1; phrase != NONE; ++end) {
      if (learned_[static_cast<size_t>(phrase)].paraphrases.size > 0) {
        places_.push_back({static_cast<int32_t>(start), static_cast<int32_t>(end - start), phrase});
      }
      if (end == words.size()) return;
      phrase = next(phrase, word(words[end]).in_table);
    }
  }

  // What a word makes of a phrase. The same few are asked for again and again: the last answers are at hand.
  int32_t next(int32_t phrase, int32_t word) {
    if (word == NONE || learned_[static_cast<size_t>(phrase)].next.size == 0) return NONE;
    const uint64_t asked = static_cast<uint64_t>(phrase) << 16 | static_cast<uint64_t>(word);
    const size_t slot = asked * 0x9e3779b97f4a7c15 >> (64 - STEP_BITS);
    if (steps_[slot].asked != asked) {
      const int32_t found = step(phrase, word);
      steps_[slot] = {asked, found};
    }
    return steps_[slot].found;
  }

  int32_t step(int32_t phrase, int32_t word) {
    const Phrase& from = learned_[static_cast<size_t>(phrase)];
    const uint64_t key = from.state << 16 | static_cast<uint64_t>(word);
    const uint64_t* const first = tables_.trie.begin() + from.next.begin;
    const uint64_t* const last = first + from.next.size;
    const uint64_t* const found = std::lower_bound(first, last, key);
    if (found == last || *found != key) return NONE;
    const auto state = static_cast<size_t>(found - tables_.trie.begin()) + 1;
    return phrase_of_[state] == NONE ? learn_phrase(state) : phrase_of_[state];
  }

  int32_t learn_phrase(size_t state) {
    const auto steps = [&](uint64_t from) {
      return std::lower_bound(tables_.trie.begin(), tables_.trie.end(), from << 16) - tables_.trie.begin();
    };
    const auto first = static_cast<uint32_t>(steps(state)), last = static_cast<uint32_t>(steps(state + 1));
    phrase_of_[state] = static_cast<int32_t>(learned_.size());
    learned_.push_back({state, {first, last - first}, learn_paraphrases(state)});
    return phrase_of_[state];
  }

  Part learn_paraphrases(size_t state) {
    const uint32_t first = tables_.paraphrase_begins[state], last = tables_.paraphrase_begins[state + 1];
    const auto known = static_cast<uint32_t>(paraphrases_.size());
    uint32_t begin = first == 0 ? 0 : tables_.paraphrase_ends[first - 1];
    for (uint32_t at = first; at < last; ++at) {
      const uint32_t end = tables_.paraphrase_ends[at];
      paraphrases_.push_back({tables_.paraphrase_words[begin], static_cast<uint16_t>(end - begin), begin});
      begin = end;
    }
    return {known, static_cast<uint32_t>(paraphrases_.size()) - known};
  }

  const Tables& tables_;
  Dictionary known_, stems_;
  std::vector<Word> words_;
  std::vector<std::vector<int32_t>> near_;  // by word, those that share a synonym set with it, in order
  Dictionary sets_;                         // by the bytes of their numbers in the table
  std::vector<int32_t> last_of_set_;        // the last of `members_`
  std::vector<Member> members_;
  std::vector<int32_t> phrase_of_;  // by state of the trie
  std::vector<Phrase> learned_;
  std::vector<Step> steps_ = std::vector<Step>(size_t{1} << STEP_BITS);
  std::vector<Paraphrase> paraphrases_;
  std::vector<int32_t> numbers_;     // of the words of all sentences
  std::vector<PhrasePlace> places_;  // of the phrases in all sentences
  std::string base_;
  int32_t root_;
};

}  // namespace caplore::meteor
