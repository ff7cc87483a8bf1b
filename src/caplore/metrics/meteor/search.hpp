// The search of align.py: the best set of matches, by a beam from the left of the reference to its right.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "strings.hpp"

namespace caplore::meteor {

constexpr size_t BEAM = 40;

enum Module : int32_t { EXACT, STEM, SYNONYM, PARAPHRASE };

struct Match {
  int32_t start, length, own, own_length;
  Module module;
};

using Options = std::vector<std::vector<Match>>;  // by where they begin in the reference
using Settled = std::vector<const Match*>;        // the same; nullptr where nothing is settled

// A set of words of both sentences as bits, those of the reference before those of the caption. Up to 64.
class Few {
 public:
  explicit Few(size_t) {}
  void set(size_t bit) { bits_ |= uint64_t{1} << bit; }
  bool test(size_t bit) const { return bits_ >> bit & 1; }
  bool meets(const Few& other) const { return (bits_ & other.bits_) != 0; }
  void join(const Few& other) { bits_ |= other.bits_; }

 private:
  uint64_t bits_ = 0;
};

// The same of any number of words.
class Many {
 public:
  explicit Many(size_t size) : bits_((size + 63) / 64) {}
  void set(size_t bit) { bits_[bit / 64] |= uint64_t{1} << bit % 64; }
  bool test(size_t bit) const { return bits_[bit / 64] >> bit % 64 & 1; }
  bool meets(const Many& other) const {
    for (size_t i = 0; i < bits_.size(); ++i) {
      if ((bits_[i] & other.bits_[i]) != 0) return true;
    }
    return false;
  }
  void join(const Many& other) {
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
  }

 private:
  std::vector<uint64_t> bits_;
};

// Hypotheses are ranked by words covered (more first), chunks, distance (less first): one number, least first.
constexpr int64_t COVERED = int64_t{1} << 40, CHUNK = int64_t{1} << 20;

inline int64_t gain(const Match& match) {
  const int32_t covered =
      match.module == EXACT ? match.length + match.own_length : match.length / 2 + match.own_length / 2;
  return -COVERED * covered;
}

inline int64_t distance(const Match& match) { return std::abs(match.start - match.own); }

// The beam, from the left of the reference to its right. `Words` is Few or Many.
template <typename Words>
class Search {
 public:
  // Appends the matches of the best hypothesis, from left to right.
  void run(const Options& options, const Settled& settled, size_t places, size_t own_places,
           std::vector<Match>& matches) {
    begin(settled, places, own_places);
    for (size_t place = 0; place < places; ++place) {
      if (settled[place] != nullptr) {
        take(*settled[place]);
      } else if (options[place].empty()) {
        pass(place);
      } else {
        branch(options[place], place);
      }
      keep_best();
      link();
    }
    unchain(best(), matches);
  }

 private:
  struct Hypothesis {
    int64_t rank;
    int32_t end;         // where its open chunk ends in the caption; NONE: none is open
    int32_t chain;       // its last match but for `match`
    const Match* match;  // what it took at this place
    Words used;
  };
  struct Link {
    const Match* match;
    int32_t before;
  };
  struct Move {
    const Match* match;
    int64_t gain, distance;
    Words used;
  };

  void begin(const Settled& settled, size_t places, size_t own_places) {
    places_ = places;
    none_ = Words(places + own_places);
    links_.clear();
    beam_.assign(1, {0, NONE, NONE, nullptr, none_});
    for (const Match* match : settled) {
      if (match != nullptr) beam_[0].used.join(words_of(*match));
    }
  }

  Words words_of(const Match& match) const {
    Words used = none_;
    const auto set = [&](size_t first, int32_t count) {
      for (int32_t i = 0; i < count; ++i) used.set(first + static_cast<size_t>(i));
    };
    set(static_cast<size_t>(match.start), match.length);
    set(places_ + static_cast<size_t>(match.own), match.own_length);
    return used;
  }

  // Those that were kept keep their matches: most that are made are dropped at once.
  void link() {
    for (Hypothesis& one : beam_) {
      if (one.match == nullptr) continue;
      links_.push_back({std::exchange(one.match, nullptr), one.chain});
      one.chain = static_cast<int32_t>(links_.size()) - 1;
    }
  }

  // All take the match that is settled.
  void take(const Match& match) {
    for (Hypothesis& one : beam_) {
      const bool same_chunk = one.end == NONE || one.end == match.own;
      one.rank += gain(match) + distance(match) + (same_chunk ? 0 : CHUNK);
      one.end = match.own + match.own_length;
      one.match = &match;
    }
  }

  // Nothing begins here: an open chunk ends, but for those in the middle of a match.
  void pass(size_t place) {
    for (Hypothesis& one : beam_) {
      if (one.end == NONE || one.used.test(place)) continue;
      one.rank += CHUNK;
      one.end = NONE;
    }
  }

  // Of each, those that take one of the matches, and the one that takes none.
  void branch(const std::vector<Match>& options, size_t place) {
    moves_.clear();
    for (const Match& match : options) {
      moves_.push_back({&match, gain(match), distance(match), words_of(match)});
    }
    next_.clear();
    for (const Hypothesis& one : beam_) {
      if (one.used.test(place)) {  // in the middle of a match
        next_.push_back(one);
      } else {
        branch_one(one);
      }
    }
    beam_.swap(next_);
  }

  void branch_one(Hypothesis one) {
    for (const Move& move : moves_) {
      if (one.used.meets(move.used)) continue;
      const Match& match = *move.match;
      const int64_t chunk = one.end == NONE || one.end == match.own ? 0 : CHUNK;
      const int32_t end = match.own + match.own_length;
      next_.push_back({one.rank + move.gain + chunk, end, one.chain, &match, one.used});
      next_.back().used.join(move.used);
      one.rank += move.distance;  // the program's slip: paid by what comes after, not by what has the match
    }
    one.rank += one.end == NONE ? 0 : CHUNK;
    one.end = NONE;
    next_.push_back(std::move(one));
  }

  // The 40 that rank first; equals in the order in which they were made.
  void keep_best() {
    const auto by_rank = [](const Hypothesis& a, const Hypothesis& b) { return a.rank < b.rank; };
    if (beam_.size() <= BEAM && std::is_sorted(beam_.begin(), beam_.end(), by_rank)) return;
    order_.clear();
    for (const Hypothesis& one : beam_) order_.emplace_back(one.rank, order_.size());
    const auto last = order_.begin() + static_cast<ptrdiff_t>(std::min(BEAM, order_.size()));
    if (last != order_.end()) std::nth_element(order_.begin(), last, order_.end());
    std::sort(order_.begin(), last);
    next_.clear();
    for (auto at = order_.begin(); at != last; ++at) next_.push_back(std::move(beam_[at->second]));
    beam_.swap(next_);
  }

  const Hypothesis& best() const {
    const auto closed = [](const Hypothesis& one) { return one.end == NONE ? one.rank : one.rank + CHUNK; };
    return *std::min_element(beam_.begin(), beam_.end(), [&](const Hypothesis& a, const Hypothesis& b) {
      return closed(a) < closed(b);
    });
  }

  void unchain(const Hypothesis& one, std::vector<Match>& matches) const {
    const size_t first = matches.size();
    for (int32_t at = one.chain; at != NONE; at = links_[static_cast<size_t>(at)].before) {
      matches.push_back(*links_[static_cast<size_t>(at)].match);
    }
    std::reverse(matches.begin() + static_cast<ptrdiff_t>(first), matches.end());
  }

  size_t places_ = 0;
  Words none_ = Words(0);
  std::vector<Hypothesis> beam_, next_;
  std::vector<Move> moves_;
  std::vector<Link> links_;
  std::vector<std::pair<int64_t, size_t>> order_;
};

}  // namespace caplore::meteor
