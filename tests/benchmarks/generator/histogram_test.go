package main

import (
	"math"
	"testing"
	"time"
)

func TestBucketsAreContiguousAndNarrow(t *testing.T) {
	previous := -1
	for d := time.Duration(0); d < 100*time.Second; d += d/1000 + 1 {
		bucket := bucketOf(d)
		if bucket < previous || bucket > previous+1 {
			t.Fatalf("%v is in bucket %d after %d", d, bucket, previous)
		}
		previous = bucket
		if off := math.Abs(float64(middleOf(bucket) - d)); off > 0.008*float64(d) {
			t.Fatalf("the bucket of %v has the middle %v", d, middleOf(bucket))
		}
	}
}

func TestExtremesStayInTheHistogram(t *testing.T) {
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 1: 1, 300 * time.Hour: buckets - 1} {
		if got := bucketOf(d); got != want {
			t.Errorf("%v is in bucket %d, not %d", d, got, want)
		}
	}
}

func TestQuantilesAreNearestRanks(t *testing.T) {
	var low, all histogram
	for i := 1; i <= 50; i++ {
		low.add(time.Duration(i))
		all.add(time.Duration(i + 50))
	}
	all.merge(&low)
	if all.total != 100 {
		t.Fatalf("%d durations", all.total)
	}
	for fraction, want := range map[float64]time.Duration{0.001: 1, 0.01: 1, 0.5: 50, 0.99: 99, 0.999: 100, 1: 100} {
		if got := all.quantile(fraction); got != want {
			t.Errorf("the quantile %v is %d, not %d", fraction, got, want)
		}
	}
}

func TestAnEmptyHistogramHasNoQuantile(t *testing.T) {
	var empty histogram
	if got := empty.quantile(0.5); got != 0 {
		t.Error(got)
	}
}
