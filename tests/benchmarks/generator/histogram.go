package main

import (
	"math/bits"
	"time"
)

// Octaves of nanoseconds are divided into 128 buckets each, so that a value is off by less than 0.8 %.
const (
	bucketBits = 7
	perOctave  = 1 << bucketBits
	octaves    = 31
	buckets    = octaves * perOctave
)

// A histogram counts durations up to about two minutes; longer ones count as the longest.
type histogram struct {
	counts [buckets]uint32
	total  uint64
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
}

// merge adds the counts of another histogram.
func (h *histogram) merge(other *histogram) {
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.total += other.total
}

// quantile returns the duration that the given fraction of all durations does not exceed, by the nearest rank; 0 if
// there are none.
func (h *histogram) quantile(fraction float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := uint64(fraction * float64(h.total))
	if float64(rank) < fraction*float64(h.total) || rank == 0 {
		rank++
	}
	seen := uint64(0)
	for i, count := range h.counts {
		seen += uint64(count)
		if seen >= rank {
			return middleOf(i)
		}
	}
	return middleOf(buckets - 1)
}

func bucketOf(d time.Duration) int {
	if d < perOctave {
		return max(int(d), 0)
	}
	octave := bits.Len64(uint64(d)) - bucketBits
	return min(octave*perOctave+int(uint64(d)>>(octave-1))-perOctave, buckets-1)
}

// middleOf returns the middle of the durations of a bucket.
func middleOf(bucket int) time.Duration {
	octave, place := bucket/perOctave, bucket%perOctave
	if octave == 0 {
		return time.Duration(place)
	}
	low := uint64(perOctave+place) << (octave - 1)
	return time.Duration(low + (uint64(1)<<(octave-1))/2)
}
