//! Counts of requests, tokens and times, in the text format of Prometheus.
//!
//! Names are those of vLLM where they mean the same.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::queue::{Done, Ended, Queue};

/// Upper ends of the buckets of times, in seconds.
const BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// A histogram of times.
#[derive(Debug, Default)]
struct Times {
    /// Number of times in each bucket alone; the last counts longer ones.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

impl Times {
    fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = BUCKETS.iter().position(|end| seconds <= *end).unwrap_or(BUCKETS.len());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} histogram\n");
        let mut count = 0;
        let ends = BUCKETS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bucket, end) in self.buckets.iter().zip(ends) {
            count += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{end}\"}} {count}");
        }
        let sum = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = write!(out, "{name}_sum {sum}\n{name}_count {count}\n");
    }
}

/// The counters of a server.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    generation_tokens: AtomicU64,
    stopped: AtomicU64,
    too_long: AtomicU64,
    failed: AtomicU64,
    prefix_bytes: AtomicU64,
    masks: AtomicU64,
    mask_nanos: AtomicU64,
    first_token: Times,
    whole: Times,
}

impl Metrics {
    /// Counts the first token of an answer, `time` after its request.
    pub(super) fn begin(&self, time: Duration) {
        self.first_token.add(time);
    }

    /// Counts a complete answer, `time` after its request.
    pub(super) fn done(&self, done: &Done, time: Duration) {
        let add = |counter: &AtomicU64, number: usize| {
            counter.fetch_add(number as u64, Ordering::Relaxed);
        };
        add(&self.prompt_tokens, done.prompt_tokens);
        add(&self.cached_tokens, done.cached_tokens);
        add(&self.generation_tokens, done.completion_tokens);
        add(if done.ended == Ended::Stop { &self.stopped } else { &self.too_long }, 1);
        self.whole.add(time);
    }

    /// Counts an answer that failed.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the size of the caches in host memory.
    pub(super) fn set_prefix_bytes(&self, bytes: u64) {
        self.prefix_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts the mask of one token and the time for it.
    pub(super) fn masked(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.masks.fetch_add(1, Ordering::Relaxed);
        self.mask_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the text for Prometheus.
    pub(super) fn text(&self, queue: &Queue) -> String {
        let mut out = String::new();
        let counts = [
            ("vllm:num_requests_running", "gauge", "Answers being generated.", queue.running()),
            ("vllm:num_requests_waiting", "gauge", "Answers that wait.", queue.waiting()),
        ];
        for (name, kind, help, value) in counts {
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
        let name = "warploom:prefix_memory_bytes";
        let bytes = self.prefix_bytes.load(Ordering::Relaxed);
        let help = "Caches of sequences in host memory.";
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {bytes}\n");
        let totals = [
            ("vllm:prompt_tokens_total", "Prompt tokens of complete answers.", &self.prompt_tokens),
            (
                "vllm:generation_tokens_total",
                "Generated tokens of complete answers.",
                &self.generation_tokens,
            ),
            (
                "warploom:cached_prompt_tokens_total",
                "Prompt tokens that were in the KV cache.",
                &self.cached_tokens,
            ),
            ("warploom:request_failure_total", "Answers that failed.", &self.failed),
            ("warploom:constraint_masks_total", "Tokens chosen under a constraint.", &self.masks),
        ];
        for (name, help, value) in totals {
            let value = value.load(Ordering::Relaxed);
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n");
        }
        let name = "warploom:constraint_seconds_total";
        let seconds = self.mask_nanos.load(Ordering::Relaxed) as f64 / 1e9;
        let help = "Time for the masks of constraints.";
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {seconds}\n");
        let name = "vllm:request_success_total";
        let _ = write!(out, "# HELP {name} Complete answers.\n# TYPE {name} counter\n");
        for (reason, value) in [("stop", &self.stopped), ("length", &self.too_long)] {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}{{finished_reason=\"{reason}\"}} {value}");
        }
        let help = "Time from a request to its first token.";
        self.first_token.write(&mut out, "vllm:time_to_first_token_seconds", help);
        let help = "Time from a request to the end of its answer.";
        self.whole.write(&mut out, "vllm:e2e_request_latency_seconds", help);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_all_that_is_shorter() {
        let metrics = Metrics::default();
        for millis in [4, 6, 400_000] {
            metrics.begin(Duration::from_millis(millis));
        }
        metrics.failed();
        metrics.masked(Duration::from_micros(1500));
        let text = metrics.text(&Queue::new(1));
        for line in [
            "vllm:time_to_first_token_seconds_bucket{le=\"0.005\"} 1",
            "vllm:time_to_first_token_seconds_bucket{le=\"0.01\"} 2",
            "vllm:time_to_first_token_seconds_bucket{le=\"300\"} 2",
            "vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 3",
            "vllm:time_to_first_token_seconds_count 3",
            "vllm:time_to_first_token_seconds_sum 400.01",
            "vllm:num_requests_running 0",
            "warploom:request_failure_total 1",
            "warploom:constraint_masks_total 1",
            "warploom:constraint_seconds_total 0.0015",
            "vllm:request_success_total{finished_reason=\"stop\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
