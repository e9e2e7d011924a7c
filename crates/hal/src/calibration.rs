//! The calibration table: measured constants of a class of devices, which estimates and tilings read.
//!
//! A constant belongs here if it is a time, or if devices differ in it. Shares of peak speed that
//! describe a kernel stay with its engine. Engines know no provider by name: a provider fills in
//! the capabilities and the calibration of its profiles, and unknown devices have the defaults.
//!
//! The table has two classes, both measured on an H200: through Vulkan ([`Calibration::new`], the
//! default of every device) and through CUDA ([`Calibration::cuda`]).

use serde::{Deserialize, Serialize};

use super::profile::DeviceProfile;

/// Measured constants of a class of devices. Fields are only ever added; a file that lacks some
/// has the defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Calibration {
    /// Seconds of one kernel launch; `None` is a round figure of the kind of device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_seconds: Option<f64>,
    /// Floating-point operations per second, without tensor cores; `None` is a round figure for
    /// the compute units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_second: Option<f64>,
    /// Threads that must be busy to reach peak speed (occupancy); `None` is a round figure for the
    /// compute units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_threads: Option<f64>,

    /// Bytes of keys and values that one workgroup of `attn_subgroup` reads in the time of a
    /// launch: fewer if launches wait less for one another. Measured after 512 to 640 keys,
    /// tokens/s against the better of `attn_decode` and `attn_split_kv`, through CUDA and Vulkan:
    /// Qwen2.5-0.5B 1,486 for 1,383 and 1,132 for 991, Llama-3.2-1B 1,948 for 1,884 and 1,253 for
    /// 1,156, SmolLM2-135M 1,794 for 1,878 and 1,206 for 1,106, Llama-3.1-8B, with heads of 128,
    /// 508 for 532 and 362 for 385.
    pub attention_bytes_per_launch: f64,
    /// Seconds that a workgroup of `attn_coop` takes for each key with the widest heads.
    pub attention_coop_key_seconds: f64,
    /// Whether workgroups of `attn_split_kv_fused` have one query head each if those of one token
    /// would leave compute units idle. Through CUDA, tokens/s: SmolLM2-135M 2,846 so, 2,677 with
    /// all three heads of a kv head in one workgroup, 2,567 with two; Qwen2.5-0.5B 2,534, with two
    /// 2,473.
    pub split_kv_single_heads: bool,
    /// Elements of a head from which a token alone has small workgroups in `attn_split_kv_fused`:
    /// fewer threads wait less for each other. Tokens/s with 256 threads and with fewer: through
    /// CUDA Llama-3.1-8B 616 and 629, Llama-3.2-1B 2,302 and 2,341, Qwen2.5-0.5B 2,443 and 2,473,
    /// BitNet-2B 1,295 and 1,314; through Vulkan BitNet-2B, with wide heads, 818 and 833, but
    /// Llama-3.2-1B 1,475 and 1,464, Qwen2.5-0.5B 1,356 and 1,307.
    pub split_kv_small_workgroup_head: u32,
    /// Share of the bandwidth that `attn_split_kv_fused` reaches if tokens share no keys; `None` if
    /// that gains nothing. Eight sequences of Llama-3.1-8B on an H100, tokens/s: through CUDA 2,264
    /// for 2,252 of `attn_subgroup` after 512 keys each and 1,702 for 1,614 after 3,000; through
    /// Vulkan 1,122 for 1,142 and 1,012 for 1,004.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_kv_sequences_share: Option<f64>,

    /// Rows of a Q4 or Q5 weight beyond which, up to 4,096, GEMV of quantised rows has four
    /// subgroups in a team instead of two. Tokens/s with four and two: through Vulkan Llama-3.1-8B
    /// 455 and 445, Llama-3.2-1B 1,409 and 1,386; through CUDA 8B 608 and 604, but 1B 2,240 and
    /// 2,270.
    pub gemv_four_subgroups_above: u32,
    /// Columns from which a Q6_K weight of at most 2,048 rows has four; `None` is never. Written as
    /// `null`, since the default is a number.
    pub gemv_q6_four_subgroups_columns: Option<u32>,
    /// Rows of a ternary weight of at most 4,096 columns below which it has four; `None` is always.
    /// Through Vulkan BitNet-2B 768 and 760 tokens/s; through CUDA 1,267 and 1,246 below 3,000
    /// rows, with more 1,246.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gemv_ternary_four_subgroups_below: Option<u32>,
    /// Iterations over ternary weights in flight: fewer if the compiler is slow for much unrolled
    /// code.
    pub gemv_ternary_in_flight: u32,
    /// Most unrolled iterations of a thread of GEMV of quantised rows: a loop leaves fewer
    /// registers to each. Through Vulkan Llama-3.1-8B made 448 tokens/s with one, 432 with four.
    pub gemv_unrolled: u32,
    /// The same for Q6_K in groups of eight blocks, whose iterations are longer.
    pub gemv_unrolled_q6: u32,
    /// Share of the bandwidth that GEMV reaches if each workgroup quantises a row of x; `None` if
    /// it depends on the format. It beat a launch of its own below some 16 MB of weights, through
    /// CUDA at 4.9 MB: this sets the limit at 7.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gemv_inline_quant_share: Option<f64>,
    /// The same for a short row and weights of 8 bits in pairs of blocks, if the share above is
    /// set. Through CUDA, tokens/s against a launch of its own: SmolLM2-135M 2,879 for 2,843,
    /// Qwen2.5-0.5B 2,521 for 2,473.
    pub gemv_inline_quant_short_share: f64,

    /// Seconds that a tile of a GEMM without tensor cores waits for each 16 columns.
    pub tile_step_seconds: f64,
    /// Seconds that a tile of cooperative matrices waits for each step over the columns.
    pub coop_step_seconds: f64,
    /// The same if it dequantises its weights.
    pub coop_dequant_step_seconds: f64,
    /// Seconds that fused epilogues take to leave a full device of cooperative matrices.
    pub coop_epilogue_seconds: f64,
}

impl Default for Calibration {
    fn default() -> Calibration {
        Calibration::new()
    }
}

impl Calibration {
    /// The defaults, as measured on an H200 through Vulkan.
    pub const fn new() -> Calibration {
        Calibration {
            launch_seconds: None,
            flops_per_second: None,
            busy_threads: None,
            attention_bytes_per_launch: 3e5,
            attention_coop_key_seconds: 1.5e-7,
            split_kv_single_heads: false,
            split_kv_small_workgroup_head: 128,
            split_kv_sequences_share: None,
            gemv_four_subgroups_above: 0,
            gemv_q6_four_subgroups_columns: Some(8192),
            gemv_ternary_four_subgroups_below: None,
            gemv_ternary_in_flight: 4,
            gemv_unrolled: 1,
            gemv_unrolled_q6: 1,
            gemv_inline_quant_share: None,
            gemv_inline_quant_short_share: 0.8,
            tile_step_seconds: 1.1e-6,
            coop_step_seconds: 6.6e-7,
            coop_dequant_step_seconds: 1.2e-6,
            coop_epilogue_seconds: 5e-5,
        }
    }

    /// As measured on an H200 through CUDA, where launches overlap and NVRTC unrolls quickly.
    pub const fn cuda() -> Calibration {
        Calibration {
            attention_bytes_per_launch: 1.7e5,
            split_kv_single_heads: true,
            split_kv_small_workgroup_head: 0,
            split_kv_sequences_share: Some(0.65),
            gemv_four_subgroups_above: 2048,
            gemv_q6_four_subgroups_columns: None,
            gemv_ternary_four_subgroups_below: Some(3000),
            gemv_ternary_in_flight: 5,
            gemv_unrolled: 4,
            gemv_unrolled_q6: 2,
            gemv_inline_quant_share: Some(0.65),
            ..Calibration::new()
        }
    }

    /// Checks that estimates can divide by the times, and that shares are shares.
    ///
    /// # Errors
    /// The field and its value.
    pub fn check(&self) -> Result<(), String> {
        let positive = [
            ("launch_seconds", self.launch_seconds),
            ("flops_per_second", self.flops_per_second),
            ("busy_threads", self.busy_threads),
            ("attention_bytes_per_launch", Some(self.attention_bytes_per_launch)),
            ("attention_coop_key_seconds", Some(self.attention_coop_key_seconds)),
            ("tile_step_seconds", Some(self.tile_step_seconds)),
            ("coop_step_seconds", Some(self.coop_step_seconds)),
            ("coop_dequant_step_seconds", Some(self.coop_dequant_step_seconds)),
            ("coop_epilogue_seconds", Some(self.coop_epilogue_seconds)),
        ];
        let shares = [
            ("split_kv_sequences_share", self.split_kv_sequences_share),
            ("gemv_inline_quant_share", self.gemv_inline_quant_share),
            ("gemv_inline_quant_short_share", Some(self.gemv_inline_quant_short_share)),
        ];
        let numbers = positive.map(|field| (field, f64::MAX)).into_iter();
        for ((field, value), most) in numbers.chain(shares.map(|field| (field, 1.0))) {
            if value.is_some_and(|value| !(value > 0.0 && value <= most)) {
                let value = value.unwrap_or_default();
                return Err(format!("calibration.{field} is {value}, not above 0 to {most:e}"));
            }
        }
        let counts = [
            ("gemv_ternary_in_flight", self.gemv_ternary_in_flight),
            ("gemv_unrolled", self.gemv_unrolled),
            ("gemv_unrolled_q6", self.gemv_unrolled_q6),
        ];
        match counts.iter().find(|(_, count)| !(1..=16).contains(count)) {
            Some((field, count)) => Err(format!("calibration.{field} is {count}, not 1 to 16")),
            None => Ok(()),
        }
    }

    /// Whether every constant has its default.
    pub(super) fn is_default(&self) -> bool {
        *self == Calibration::new()
    }
}

impl DeviceProfile {
    /// The capabilities and calibration that a provider reports if it runs kernels translated to
    /// CUDA C, whatever its name: launches overlap, barriers order device memory, int8 matrices go
    /// with tensor cores, and cuBLASLt is called if it is installed
    /// ([`DeviceProfile::has_gemm_library`]). The limits stay.
    pub fn with_cuda_features(self) -> DeviceProfile {
        DeviceProfile {
            has_launch_overlap: true,
            has_device_scope_barrier: true,
            has_int8_mma: self.has_matrix_hw,
            supports_gemm_library: true,
            clock_drops_when_idle: false,
            calibration: Calibration::cuda(),
            ..self
        }
    }
}
