// What BLEU, ROUGE-L, CIDEr and the set metrics count, of captions as ids (caplore.metrics.counts).
//
// Captions of inputs are three arrays: `words` (ids from 1), where each caption begins in them, where each
// input begins in the captions, the last two with their end. An n-gram is its four ids side by side in 128
// bits, so keys are exact for any vocabulary. The n-grams of one input are numbered in a small table that
// stays in the cache; a caption is then a list of (number, count), and all comparisons are loops over such
// lists.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "../native.hpp"

namespace caplore {
namespace {

constexpr int ORDERS = 4;
constexpr int STATISTICS = 2 * ORDERS + 2;  // BLEU's: matches, totals, length, closest length

// ---- captions as ids

// Captions of inputs, as the three arrays; checked once, so that no loop below can leave them.
class Ragged {
 public:
  Ragged(PyObject* words, PyObject* captions, PyObject* inputs)
      : words_(words), captions_(captions), inputs_(inputs) {
    check(captions_, words_.size(), "captions");
    check(inputs_, captions_.size() - 1, "inputs");
    for (const int32_t word : words_)
      if (word < 1) throw std::invalid_argument("ids of words begin at 1");
  }

  int64_t inputs() const { return inputs_.size() - 1; }
  int64_t first(int64_t input) const { return inputs_[input]; }
  int64_t rows(int64_t input) const { return inputs_[input + 1] - inputs_[input]; }
  int64_t captions() const { return captions_.size() - 1; }
  size_t words() const { return static_cast<size_t>(words_.size()); }
  const int32_t* begin(int64_t caption) const { return words_.data() + captions_[caption]; }
  int64_t length(int64_t caption) const { return captions_[caption + 1] - captions_[caption]; }

 private:
  static void check(const Array<int64_t>& ends, int64_t size, const char* what) {
    bool right = ends.size() > 0 && ends[0] == 0 && ends[ends.size() - 1] == size;
    for (int64_t i = 1; right && i < ends.size(); ++i) right = ends[i - 1] <= ends[i];
    if (right) return;
    throw std::invalid_argument(std::string("the ends of ") + what + " are not those of their contents");
  }

  Array<int32_t> words_;
  Array<int64_t> captions_, inputs_;
};

// ---- n-grams

struct Ngram {
  uint64_t first = 0, second = 0;  // two ids each; 0 where the n-gram has no such word

  bool operator==(const Ngram& other) const { return first == other.first && second == other.second; }
  bool is_none() const { return first == 0; }
  int order() const { return second == 0 ? (first >> 32 == 0 ? 1 : 2) : (second >> 32 == 0 ? 3 : 4); }
  uint64_t hash() const {
    uint64_t mixed = (first ^ (second * 0x9E3779B97F4A7C15u)) * 0xD6E8FEB86659FD93u;
    mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93u;
    return mixed ^ (mixed >> 32);
  }
};

// Call `each` with every n-gram of up to four words.
template <typename Each>
void for_each_ngram(const int32_t* words, int64_t length, Each each) {
  for (int64_t start = 0; start < length; ++start) {
    const auto id = [&](int64_t i) { return static_cast<uint64_t>(static_cast<uint32_t>(words[start + i])); };
    const int64_t rest = length - start;
    Ngram gram{id(0), 0};
    each(gram);
    if (rest < 2) continue;
    gram.first |= id(1) << 32;
    each(gram);
    if (rest < 3) continue;
    gram.second = id(2);
    each(gram);
    if (rest < 4) continue;
    gram.second |= id(3) << 32;
    each(gram);
  }
}

size_t power_of_two_above(size_t least) {
  size_t size = 16;
  while (size < least) size *= 2;
  return size;
}

// In the captions of how many inputs an n-gram stands: open addressing, a slot is one read. The table is
// larger than the caches, so before n-grams are looked up their slots are all read: reads that do not wait
// for each other.
class Frequencies {
 public:
  explicit Frequencies(const Ragged& references) : slots_(power_of_two_above(references.words())) {
    if (references.inputs() > INT32_MAX) throw std::invalid_argument("more than 2^31 inputs");
    std::vector<Ngram> grams;
    for (int64_t input = 0; input < references.inputs(); ++input)
      for (int64_t i = references.first(input); i < references.first(input + 1); ++i) {
        grams.clear();
        for_each_ngram(references.begin(i), references.length(i),
                       [&](const Ngram& gram) { grams.push_back(gram); });
        touch(grams);
        for (const Ngram& gram : grams) count(gram, static_cast<int32_t>(input));
      }
    // log(images) - log(max(1, df)), squared, of every df there can be: a logarithm costs more than a lookup
    const double images = std::log(static_cast<double>(std::max<int64_t>(1, references.inputs())));
    squared_idf_.resize(static_cast<size_t>(references.inputs()) + 1);
    for (size_t df = 0; df < squared_idf_.size(); ++df) {
      const double idf = images - std::log(static_cast<double>(std::max<size_t>(1, df)));
      squared_idf_[df] = idf * idf;
    }
  }

  // log(images / df) squared, of each of some n-grams.
  void look_up(const std::vector<Ngram>& grams, std::vector<double>& squared_idf) const {
    touch(grams);
    squared_idf.clear();
    for (const Ngram& gram : grams) {
      const int32_t df = slots_[place(gram)].count;
      squared_idf.push_back(squared_idf_[static_cast<size_t>(df)]);
    }
  }

  int64_t size() const { return static_cast<int64_t>(used_); }

 private:
  struct Slot {
    Ngram gram;
    int32_t count = 0;
    int32_t last = -1;  // the input that was counted last: an n-gram counts once per input
  };

  void touch(const std::vector<Ngram>& grams) const {
    int32_t sum = 0;
    for (const Ngram& gram : grams) sum += slots_[gram.hash() & (slots_.size() - 1)].count;
    volatile int32_t read = sum;  // or the compiler would leave the reads out
    static_cast<void>(read);
  }

  // Where the n-gram is, or the empty slot where it would be.
  size_t place(const Ngram& gram) const {
    const size_t mask = slots_.size() - 1;
    size_t at = gram.hash() & mask;
    while (!slots_[at].gram.is_none() && !(slots_[at].gram == gram)) at = (at + 1) & mask;
    return at;
  }

  void count(const Ngram& gram, int32_t input) {
    size_t at = place(gram);
    if (slots_[at].gram.is_none()) {
      if (4 * ++used_ > 3 * slots_.size()) {
        grow();
        at = place(gram);
      }
      slots_[at].gram = gram;
    }
    Slot& slot = slots_[at];
    slot.count += slot.last != input;
    slot.last = input;
  }

  void grow() {
    std::vector<Slot> before(2 * slots_.size());
    before.swap(slots_);
    for (const Slot& slot : before)
      if (!slot.gram.is_none()) slots_[place(slot.gram)] = slot;
  }

  std::vector<Slot> slots_;
  std::vector<double> squared_idf_;
  size_t used_ = 0;
};

// The n-grams of one input, numbered from 0 in the order they come.
class Numbering {
 public:
  void start(int64_t most) {
    const size_t size = power_of_two_above(2 * static_cast<size_t>(most));
    if (slots_.size() < size) slots_.resize(size);
    mask_ = size - 1;
    std::fill_n(slots_.begin(), size, -1);
    grams_.clear();
  }

  int32_t number(const Ngram& gram) {
    size_t at = gram.hash() & mask_;
    while (slots_[at] >= 0 && !(grams_[static_cast<size_t>(slots_[at])] == gram)) at = (at + 1) & mask_;
    if (slots_[at] < 0) {
      slots_[at] = static_cast<int32_t>(grams_.size());
      grams_.push_back(gram);
    }
    return slots_[at];
  }

  const std::vector<Ngram>& grams() const { return grams_; }

 private:
  std::vector<int32_t> slots_;
  std::vector<Ngram> grams_;
  size_t mask_ = 0;
};

// ---- one input: its captions as lists of (n-gram, count)

struct Entry {
  int32_t gram, count;
};

using Norms = std::array<double, ORDERS>;

// Some captions of an input; what comparing them needs.
struct Rows {
  std::vector<Entry> entries;
  std::vector<size_t> begins;
  std::vector<int64_t> lengths;
  std::vector<Norms> inverse_norms;  // of tf-idf vectors, for each order; 0 where the norm is 0

  size_t size() const { return lengths.size(); }
  const Entry* begin(size_t row) const { return entries.data() + begins[row]; }
  const Entry* end(size_t row) const { return entries.data() + begins[row + 1]; }
};

struct Input {
  Numbering numbering;
  Rows said, refs;
  std::vector<int8_t> order;          // of each n-gram, from 0
  std::vector<int32_t> tf;            // of each n-gram in the caption at hand; all 0 between captions
  std::vector<double> squared_idf;    // of each n-gram, where frequencies are given
  int64_t distinct[ORDERS] = {};      // n-grams of the captions, references left out

  void read(const Ragged& captions, const Ragged& references, int64_t input, const Frequencies* frequencies) {
    numbering.start(ORDERS * (words(captions, input) + words(references, input)));
    order.clear();
    read_rows(captions, input, said);
    std::fill(std::begin(distinct), std::end(distinct), 0);
    for (const int8_t n : order) ++distinct[n];
    read_rows(references, input, refs);
    if (frequencies == nullptr) return;
    frequencies->look_up(numbering.grams(), squared_idf);
    weigh(said);
    weigh(refs);
  }

 private:
  static int64_t words(const Ragged& captions, int64_t input) {
    const int64_t first = captions.first(input), last = captions.first(input + 1);
    return first == last ? 0 : captions.begin(last - 1) + captions.length(last - 1) - captions.begin(first);
  }

  void read_rows(const Ragged& captions, int64_t input, Rows& rows) {
    rows.entries.clear();
    rows.lengths.clear();
    rows.begins.assign(1, 0);
    for (int64_t i = captions.first(input); i < captions.first(input + 1); ++i) {
      for_each_ngram(captions.begin(i), captions.length(i), [&](const Ngram& gram) { add(gram, rows); });
      for (size_t k = rows.begins.back(); k < rows.entries.size(); ++k) {
        Entry& entry = rows.entries[k];
        entry.count = std::exchange(tf[static_cast<size_t>(entry.gram)], 0);
      }
      rows.begins.push_back(rows.entries.size());
      rows.lengths.push_back(captions.length(i));
    }
  }

  void add(const Ngram& gram, Rows& rows) {
    const int32_t number = numbering.number(gram);
    if (static_cast<size_t>(number) == order.size()) order.push_back(static_cast<int8_t>(gram.order() - 1));
    if (tf.size() < order.size()) tf.resize(2 * order.size(), 0);
    if (tf[static_cast<size_t>(number)]++ == 0) rows.entries.push_back({number, 0});
  }

  void weigh(Rows& rows) {
    rows.inverse_norms.assign(rows.size(), Norms{});
    for (size_t row = 0; row < rows.size(); ++row) {
      Norms& norms = rows.inverse_norms[row];
      for (const Entry* entry = rows.begin(row); entry != rows.end(row); ++entry) {
        const double count = entry->count;
        norms[order[entry->gram]] += count * count * squared_idf[entry->gram];
      }
      for (double& norm : norms) norm = norm > 0 ? 1 / std::sqrt(norm) : 0;
    }
  }
};

// ---- BLEU

// Write matches 1..4, totals 1..4, length, closest length.
void put_statistics(const int64_t (&matches)[ORDERS], int64_t length, int64_t closest, int32_t* out) {
  for (int n = 0; n < ORDERS; ++n) {
    out[n] = static_cast<int32_t>(matches[n]);
    out[ORDERS + n] = static_cast<int32_t>(std::max<int64_t>(0, length - n));
  }
  out[2 * ORDERS] = static_cast<int32_t>(length);
  out[2 * ORDERS + 1] = static_cast<int32_t>(closest);
}

// The length nearest to that of the caption, the shorter of two; `but` is a row that does not count.
int64_t closest_length(int64_t length, const std::vector<int64_t>& lengths, size_t but) {
  int64_t best = -1;
  for (size_t row = 0; row < lengths.size(); ++row) {
    if (row == but) continue;
    const int64_t apart = std::abs(lengths[row] - length), before = std::abs(best - length);
    if (best < 0 || apart < before || (apart == before && lengths[row] < best)) best = lengths[row];
  }
  return std::max<int64_t>(0, best);
}

constexpr size_t NO_ROW = SIZE_MAX;

// Of each n-gram the largest count in any row, in which row, and the largest in any other row.
class Most {
 public:
  void of(const Rows& rows, size_t grams) {
    best_.assign(grams, {});
    for (size_t row = 0; row < rows.size(); ++row)
      for (const Entry* entry = rows.begin(row); entry != rows.end(row); ++entry) {
        Best& best = best_[static_cast<size_t>(entry->gram)];
        if (entry->count > best.count) best = {entry->count, best.count, row};
        else if (entry->count > best.other) best.other = entry->count;
      }
  }

  int32_t count(int32_t gram, size_t but) const {
    const Best& best = best_[static_cast<size_t>(gram)];
    return best.row == but ? best.other : best.count;
  }

 private:
  struct Best {
    int32_t count = 0, other = 0;
    size_t row = NO_ROW - 1;
  };
  std::vector<Best> best_;
};

// Row `row` of the captions against `others`, each n-gram clipped by the row that has most of it.
void bleu_against(const Input& input, size_t row, const Rows& others, const Most& most, size_t but,
                  int32_t* out) {
  int64_t matches[ORDERS] = {};
  for (const Entry* entry = input.said.begin(row); entry != input.said.end(row); ++entry)
    matches[input.order[entry->gram]] += std::min(entry->count, most.count(entry->gram, but));
  const int64_t length = input.said.lengths[row];
  put_statistics(matches, length, closest_length(length, others.lengths, but), out);
}

// The caption whose counts are in `tf` against one reference.
void bleu_of_pair(const Input& input, size_t row, size_t ref, int32_t* out) {
  int64_t matches[ORDERS] = {};
  for (const Entry* entry = input.refs.begin(ref); entry != input.refs.end(ref); ++entry)
    matches[input.order[entry->gram]] += std::min(entry->count, input.tf[entry->gram]);
  put_statistics(matches, input.said.lengths[row], input.refs.lengths[ref], out);
}

// ---- CIDEr

// The mean over orders of the cosine of the caption whose counts are in `tf` with a row; `clipped`:
// CIDEr-D's.
double cosine(const Input& input, const Norms& norms, const Rows& rows, size_t row, bool clipped) {
  double dots[ORDERS] = {};
  for (const Entry* entry = rows.begin(row); entry != rows.end(row); ++entry) {
    const int32_t own = input.tf[entry->gram];
    if (own == 0) continue;
    const double met = clipped ? std::min(own, entry->count) : own;
    dots[input.order[entry->gram]] += met * entry->count * input.squared_idf[entry->gram];
  }
  double sum = 0;
  for (int n = 0; n < ORDERS; ++n) sum += dots[n] * norms[n] * rows.inverse_norms[row][n];
  return sum / ORDERS;
}

// CIDEr-D's price of lengths that differ; lengths count bigrams, as the reference code does.
double length_factor(int64_t length, int64_t other, double sigma) {
  const auto apart = static_cast<double>(std::max<int64_t>(0, length - 1) - std::max<int64_t>(0, other - 1));
  return std::exp(-apart * apart / (2 * sigma * sigma));
}

// ---- all of it for some inputs

// Arrays of Python to write into; those that are None are not wanted.
struct Outputs {
  std::optional<Array<int32_t>> bleu, bleu_each, bleu_others, ngrams, captions;
  std::optional<Array<double>> cider_d, cider, cider_others;

  bool needs_frequencies() const { return cider_d || cider || cider_others; }
};

template <typename T>
void open_output(std::optional<Array<T>>& array, PyObject* object, int64_t size) {
  if (object == Py_None) return;
  array.emplace(object, true);
  if (array->size() != size) throw std::invalid_argument("an array to write into is not of the right size");
}

// How many different captions: rows in order, then those that differ from the one before.
int32_t distinct_captions(const Ragged& captions, int64_t input) {
  std::vector<int64_t> rows;
  for (int64_t i = captions.first(input); i < captions.first(input + 1); ++i) rows.push_back(i);
  const auto end = [&](int64_t i) { return captions.begin(i) + captions.length(i); };
  std::sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(captions.begin(a), end(a), captions.begin(b), end(b));
  });
  const auto same = [&](int64_t a, int64_t b) {
    return std::equal(captions.begin(a), end(a), captions.begin(b), end(b));
  };
  return static_cast<int32_t>(std::unique(rows.begin(), rows.end(), same) - rows.begin());
}

class Counter {
 public:
  Counter(const Ragged& said, const Ragged& refs, const Frequencies* frequencies, double sigma,
          const Outputs& out)
      : said_(said), refs_(refs), frequencies_(frequencies), sigma_(sigma), out_(out) {}

  void count(int64_t begin, int64_t end) {
    int64_t pairs = 0, set_pairs = 0;  // of the inputs before
    for (int64_t i = 0; i < end; ++i) {
      if (i >= begin) count_input(i, pairs, set_pairs);
      pairs += said_.rows(i) * refs_.rows(i);
      set_pairs += said_.rows(i) * said_.rows(i);
    }
  }

 private:
  void count_input(int64_t i, int64_t pair, int64_t set_pair) {
    input_.read(said_, refs_, i, out_.needs_frequencies() ? frequencies_ : nullptr);
    const size_t grams = input_.order.size();
    if (out_.bleu) most_.of(input_.refs, grams);
    if (out_.bleu_others) most_other_.of(input_.said, grams);
    for (size_t row = 0; row < input_.said.size(); ++row) {
      const int64_t caption = said_.first(i) + static_cast<int64_t>(row);
      if (out_.bleu) bleu_against(input_, row, input_.refs, most_, NO_ROW, statistics(out_.bleu, caption));
      if (out_.bleu_others && input_.said.size() > 1)  // what was 0 stays so where there is no other
        bleu_against(input_, row, input_.said, most_other_, row, statistics(out_.bleu_others, caption));
      count_pairs(row, pair, set_pair);
      pair += static_cast<int64_t>(input_.refs.size());
      set_pair += static_cast<int64_t>(input_.said.size());
    }
    if (out_.ngrams)
      for (int n = 0; n < ORDERS; ++n)
        (*out_.ngrams)[ORDERS * i + n] = static_cast<int32_t>(input_.distinct[n]);
    if (out_.captions) (*out_.captions)[i] = distinct_captions(said_, i);
  }

  // The caption with each reference, and with each caption of its set.
  void count_pairs(size_t row, int64_t pair, int64_t set_pair) {
    if (!out_.bleu_each && !out_.needs_frequencies()) return;
    const Rows &said = input_.said, &refs = input_.refs;
    for (const Entry* entry = said.begin(row); entry != said.end(row); ++entry)
      input_.tf[entry->gram] = entry->count;
    for (size_t ref = 0; ref < refs.size(); ++ref, ++pair) {
      if (out_.bleu_each) bleu_of_pair(input_, row, ref, statistics(out_.bleu_each, pair));
      if (out_.cider_d)
        (*out_.cider_d)[pair] = cosine(input_, said.inverse_norms[row], refs, ref, true) *
                                length_factor(said.lengths[row], refs.lengths[ref], sigma_);
      if (out_.cider) (*out_.cider)[pair] = cosine(input_, said.inverse_norms[row], refs, ref, false);
    }
    if (out_.cider_others)
      for (size_t other = 0; other < said.size(); ++other)
        (*out_.cider_others)[set_pair++] = cosine(input_, said.inverse_norms[row], said, other, false);
    for (const Entry* entry = said.begin(row); entry != said.end(row); ++entry) input_.tf[entry->gram] = 0;
  }

  static int32_t* statistics(const std::optional<Array<int32_t>>& out, int64_t row) {
    return out->data() + STATISTICS * row;
  }

  const Ragged &said_, &refs_;
  const Frequencies* frequencies_;
  const double sigma_;
  const Outputs& out_;
  Input input_;
  Most most_, most_other_;
};

// ---- the longest common subsequence

// Columns of the usual table are bits, a row of it is four operations (Hyyro, 2004): a bit is 0 where the
// table grows. For each word of the caption with matches M: U = V & M; V = (V + U) | (V & ~U). Blocks of 64
// words of the reference come one after the other; `carries_` takes the sum's last bit to the next block.
class CommonSubsequence {
 public:
  int32_t length(const int32_t* words, int64_t length, const int32_t* ref, int64_t ref_length) {
    carries_.assign(static_cast<size_t>(length), 0);
    int32_t found = 0;
    for (int64_t begin = 0; begin < ref_length; begin += 64)
      found += of_block(words, length, ref + begin, std::min<int64_t>(64, ref_length - begin));
    return found;
  }

 private:
  int32_t of_block(const int32_t* words, int64_t length, const int32_t* ref, int64_t width) {
    uint64_t row = ~uint64_t{0};
    for (int64_t i = 0; i < length; ++i) {
      uint64_t matches = 0;
      for (int64_t k = 0; k < width; ++k) matches |= static_cast<uint64_t>(ref[k] == words[i]) << k;
      const uint64_t both = row & matches, sum = row + both, with_carry = sum + carries_[i];
      carries_[i] = (sum < row) | (with_carry < sum);
      row = with_carry | (row & ~both);
    }
    int32_t found = 0;
    for (int64_t k = 0; k < width; ++k) found += (~row >> k) & 1;
    return found;
  }

  std::vector<uint8_t> carries_;
};

// An empty caption counts as one empty word, as in coco-caption: it has 1 in common with another one.
void count_common(const Ragged& said, const Ragged& refs, int64_t begin, int64_t end,
                  const Array<int32_t>& out) {
  CommonSubsequence common;
  int64_t pair = 0;
  for (int64_t i = 0; i < end; ++i) {
    if (i < begin) {
      pair += said.rows(i) * refs.rows(i);
      continue;
    }
    for (int64_t c = said.first(i); c < said.first(i + 1); ++c)
      for (int64_t r = refs.first(i); r < refs.first(i + 1); ++r) {
        const int64_t length = said.length(c), ref_length = refs.length(r);
        const bool both_empty = length == 0 && ref_length == 0;
        out[pair++] = both_empty ? 1 : common.length(said.begin(c), length, refs.begin(r), ref_length);
      }
  }
}

// ---- words to ids

// Words numbered from 0 as they come, by their bytes.
class Words {
 public:
  Words() : slots_(1 << 12, -1) {}

  int32_t id(std::string_view word) {
    size_t at = place(word);
    if (slots_[at] < 0) {
      if (2 * words_.size() > slots_.size()) {
        grow();
        at = place(word);
      }
      slots_[at] = static_cast<int32_t>(words_.size());
      words_.push_back(word);
    }
    return slots_[at];
  }

  const std::vector<std::string_view>& words() const { return words_; }

 private:
  size_t place(std::string_view word) const {
    const size_t mask = slots_.size() - 1;
    size_t at = std::hash<std::string_view>()(word) & mask;
    while (slots_[at] >= 0 && words_[static_cast<size_t>(slots_[at])] != word) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    slots_.assign(2 * slots_.size(), -1);
    for (size_t i = 0; i < words_.size(); ++i) slots_[place(words_[i])] = static_cast<int32_t>(i);
  }

  std::vector<int32_t> slots_;
  std::vector<std::string_view> words_;  // into the lines, which outlive this
};

// Ids of the words of lines, words being what stands between spaces.
struct Encoded {
  Words words;
  std::vector<int32_t> ids;
  std::vector<int64_t> ends{0};

  void add(std::string_view line) {
    while (!line.empty()) {
      const size_t end = std::min(line.find(' '), line.size());
      if (end > 0) ids.push_back(words.id(line.substr(0, end)));
      line.remove_prefix(std::min(end + 1, line.size()));
    }
    ends.push_back(static_cast<int64_t>(ids.size()));
  }
};

// ---- what Python calls

// encode(lines) -> (ids int32, begins int64, words): ids from 0 of the words of the lines, where each line
// begins among them and the end, the words.
PyObject* encode(PyObject*, PyObject* argument) {
  return guarded([&]() -> PyObject* {
    const Owned lines = owned(PySequence_Tuple(argument));  // keeps its strings, whatever others do
    std::vector<std::string_view> texts;
    for (Py_ssize_t i = 0; i < PyTuple_Size(lines.get()); ++i) {
      Py_ssize_t size = 0;
      const char* text = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(lines.get(), i), &size);
      if (text == nullptr) throw PythonError();
      texts.emplace_back(text, static_cast<size_t>(size));
    }
    Encoded encoded;
    {
      const WithoutGil others_run;
      for (const std::string_view text : texts) encoded.add(text);
    }
    const auto& words = encoded.words.words();
    const Owned list = owned(PyList_New(static_cast<Py_ssize_t>(words.size())));
    for (size_t i = 0; i < words.size(); ++i) {
      const auto size = static_cast<Py_ssize_t>(words[i].size());
      PyObject* word = PyUnicode_DecodeUTF8(words[i].data(), size, nullptr);
      if (word == nullptr) throw PythonError();
      if (PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), word) != 0) throw PythonError();
    }
    const Owned ids = owned(bytes_of(encoded.ids)), ends = owned(bytes_of(encoded.ends));
    return PyTuple_Pack(3, ids.get(), ends.get(), list.get());
  });
}

constexpr const char* FREQUENCIES = "caplore.frequencies";

void delete_frequencies(PyObject* capsule) {
  delete static_cast<Frequencies*>(PyCapsule_GetPointer(capsule, FREQUENCIES));
}

// frequencies(references) -> a capsule that count() takes.
PyObject* frequencies(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject *words, *captions, *inputs;
    if (!PyArg_ParseTuple(arguments, "(OOO)", &words, &captions, &inputs)) throw PythonError();
    const Ragged references(words, captions, inputs);
    std::unique_ptr<Frequencies> made;
    {
      const WithoutGil others_run;
      made = std::make_unique<Frequencies>(references);
    }
    PyObject* capsule = PyCapsule_New(made.get(), FREQUENCIES, delete_frequencies);
    if (capsule == nullptr) throw PythonError();
    made.release();
    return capsule;
  });
}

// ngrams_known(capsule) -> how many different n-grams the references had.
PyObject* ngrams_known(PyObject*, PyObject* capsule) {
  return guarded([&]() -> PyObject* {
    const auto* known = static_cast<Frequencies*>(PyCapsule_GetPointer(capsule, FREQUENCIES));
    if (known == nullptr) throw PythonError();
    return PyLong_FromLongLong(known->size());
  });
}

void check_span(const Ragged& said, const Ragged& refs, Py_ssize_t begin, Py_ssize_t end) {
  if (said.inputs() != refs.inputs())
    throw std::invalid_argument("captions and references are of other inputs");
  if (begin < 0 || begin > end || end > said.inputs())
    throw std::invalid_argument("there are no such inputs");
}

// Pairs of a caption and a row of its input in `rows`, over all inputs.
int64_t pairs_of(const Ragged& said, const Ragged& rows) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < said.inputs(); ++i) pairs += said.rows(i) * rows.rows(i);
  return pairs;
}

// count(said, refs, (begin, end), frequencies or None, sigma, outputs): fills the rows of those inputs.
PyObject* count(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject *words, *captions, *inputs, *ref_words, *ref_captions, *ref_inputs, *capsule, *made[8];
    Py_ssize_t begin, end;
    double sigma;
    if (!PyArg_ParseTuple(arguments, "(OOO)(OOO)(nn)Od(OOOOOOOO)", &words, &captions, &inputs, &ref_words,
                          &ref_captions, &ref_inputs, &begin, &end, &capsule, &sigma, &made[0], &made[1],
                          &made[2], &made[3], &made[4], &made[5], &made[6], &made[7]))
      throw PythonError();
    const Ragged said(words, captions, inputs), refs(ref_words, ref_captions, ref_inputs);
    check_span(said, refs, begin, end);
    const int64_t pairs = pairs_of(said, refs);
    Outputs out;
    open_output(out.bleu, made[0], STATISTICS * said.captions());
    open_output(out.bleu_each, made[1], STATISTICS * pairs);
    open_output(out.bleu_others, made[2], STATISTICS * said.captions());
    open_output(out.ngrams, made[3], ORDERS * said.inputs());
    open_output(out.captions, made[4], said.inputs());
    open_output(out.cider_d, made[5], pairs);
    open_output(out.cider, made[6], pairs);
    open_output(out.cider_others, made[7], pairs_of(said, said));
    const Frequencies* known = nullptr;
    if (out.needs_frequencies()) {
      known = static_cast<Frequencies*>(PyCapsule_GetPointer(capsule, FREQUENCIES));
      if (known == nullptr) throw PythonError();
    }
    {
      const WithoutGil others_run;
      Counter(said, refs, known, sigma, out).count(begin, end);
    }
    Py_RETURN_NONE;
  });
}

// common(said, refs, (begin, end), output): the longest common subsequence of each caption and reference.
PyObject* common(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject *words, *captions, *inputs, *ref_words, *ref_captions, *ref_inputs, *made;
    Py_ssize_t begin, end;
    if (!PyArg_ParseTuple(arguments, "(OOO)(OOO)(nn)O", &words, &captions, &inputs, &ref_words, &ref_captions,
                          &ref_inputs, &begin, &end, &made))
      throw PythonError();
    const Ragged said(words, captions, inputs), refs(ref_words, ref_captions, ref_inputs);
    check_span(said, refs, begin, end);
    std::optional<Array<int32_t>> out;
    open_output(out, made, pairs_of(said, refs));
    if (out) {
      const WithoutGil others_run;
      count_common(said, refs, begin, end, *out);
    }
    Py_RETURN_NONE;
  });
}

PyMethodDef methods[] = {
    {"encode", encode, METH_O, "Lines of words as ids from 0, where lines end, and the words."},
    {"frequencies", frequencies, METH_VARARGS, "Document frequencies of references."},
    {"ngrams_known", ngrams_known, METH_O, "How many n-grams document frequencies know."},
    {"count", count, METH_VARARGS, "Fill arrays with what is counted of some inputs."},
    {"common", common, METH_VARARGS, "Fill an array with lengths of longest common subsequences."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_counts", "Counting n-grams of captions: see counts.py.",
                          -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace caplore

PyMODINIT_FUNC PyInit__counts() { return caplore::module_of(caplore::definition); }
