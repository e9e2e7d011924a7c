//! The calibration table: measured constants of a class of devices, for cost estimates and tilings.
//!
//! A constant belongs here if it is a time, or if it differs between devices. Shares of peak speed
//! that characterise a kernel stay with its engine. Engines know no provider by name: a provider
//! fills in the capabilities and the calibration of its profiles, and unknown devices have the
//! defaults.
//!
//! The table has two classes, both measured on an H200: through Vulkan ([`Calibration::new`], the
//! default of every device) and through CUDA ([`Calibration::cuda`]).

use serde::{Deserialize, Serialize};

use super::profile::DeviceProfile;

/// Measured constants of a class of devices. Later versions may add fields; a field that is missing
/// from a file has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Calibration {
    /// Seconds of one kernel launch; `None` selects an estimate for the kind of device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_seconds: Option<f64>,
    /// Floating-point operations per second, without tensor cores; `None` selects an estimate from
    /// the kind of device and its compute units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_second: Option<f64>,
    /// Number of threads that must be busy to reach peak speed (occupancy); `None` selects an
    /// estimate from the kind of device and its compute units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_threads: Option<f64>,

    /// Bytes of keys and values that one workgroup of `attn_subgroup` reads in the time of a
    /// launch. Lower if launches wait less for each other.
    ///
    /// Tokens/s after 512 to 640 keys, with `attn_subgroup` and with the better of `attn_decode`
    /// and `attn_split_kv`; Llama-3.1-8B has heads of 128:
    ///
    /// - through CUDA: Qwen2.5-0.5B 1,486 and 1,383, Llama-3.2-1B 1,948 and 1,884, SmolLM2-135M
    ///   1,794 and 1,878, Llama-3.1-8B 508 and 532;
    /// - through Vulkan: Qwen2.5-0.5B 1,132 and 991, Llama-3.2-1B 1,253 and 1,156, SmolLM2-135M
    ///   1,206 and 1,106, Llama-3.1-8B 362 and 385.
    pub attention_bytes_per_launch: f64,
    /// Seconds that a workgroup of `attn_coop` takes per key, for heads of the maximum width.
    pub attention_coop_key_seconds: f64,
    /// Whether each workgroup of `attn_split_kv_fused` has a single query head if fewer workgroups
    /// per token would leave compute units idle. Tokens/s through CUDA: SmolLM2-135M 2,846 with
    /// single heads, 2,567 with two per workgroup, 2,677 with all three of a KV head; Qwen2.5-0.5B
    /// 2,534 with single heads, 2,473 with two.
    pub split_kv_single_heads: bool,
    /// Head size in elements from which `attn_split_kv_fused` has small workgroups for a single
    /// token: with fewer threads, barriers cost less.
    ///
    /// Tokens/s with 256 threads and with fewer:
    ///
    /// - through CUDA: Llama-3.1-8B 616 and 629, Llama-3.2-1B 2,302 and 2,341, Qwen2.5-0.5B 2,443
    ///   and 2,473, BitNet-2B 1,295 and 1,314;
    /// - through Vulkan: BitNet-2B, which has wide heads, 818 and 833, but Llama-3.2-1B 1,475 and
    ///   1,464, Qwen2.5-0.5B 1,356 and 1,307.
    pub split_kv_small_workgroup_head: u32,
    /// Share of the memory bandwidth that `attn_split_kv_fused` reaches if tokens share no keys;
    /// `None` if it is not faster then.
    ///
    /// Tokens/s with it and with `attn_subgroup`, for eight sequences of Llama-3.1-8B on an H100:
    /// through CUDA 2,264 and 2,252 after 512 keys each, and 1,702 and 1,614 after 3,000; through
    /// Vulkan 1,122 and 1,142, and 1,012 and 1,004.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_kv_sequences_share: Option<f64>,

    /// Number of rows of a Q4 or Q5 weight above which, up to 4,096 rows, GEMV of quantised rows
    /// has four subgroups per team instead of two. Tokens/s with four and with two: through Vulkan
    /// Llama-3.1-8B 455 and 445, Llama-3.2-1B 1,409 and 1,386; through CUDA Llama-3.1-8B 608 and
    /// 604, but Llama-3.2-1B 2,240 and 2,270.
    pub gemv_four_subgroups_above: u32,
    /// Number of columns from which GEMV has four subgroups per team for a Q6_K weight of at most
    /// 2,048 rows; `None` means never. Files contain `None` as `null`, since the default is a
    /// number.
    pub gemv_q6_four_subgroups_columns: Option<u32>,
    /// Number of rows below which GEMV has four subgroups per team for a ternary weight of at most
    /// 4,096 columns; `None` means always. Tokens/s of BitNet-2B with four and with two: through
    /// Vulkan 768 and 760; through CUDA 1,267 and 1,246 below 3,000 rows, and 1,246 if weights with
    /// more rows have four too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gemv_ternary_four_subgroups_below: Option<u32>,
    /// Number of iterations over ternary weights that are in flight: fewer if the compiler is slow
    /// on heavily unrolled code.
    pub gemv_ternary_in_flight: u32,
    /// Maximum number of iterations that a thread of GEMV of quantised rows unrolls; if a row needs
    /// more, the kernel loops. Tokens/s of Llama-3.1-8B through Vulkan: 448 with one, 432 with
    /// four.
    pub gemv_unrolled: u32,
    /// Same as `gemv_unrolled`, for Q6_K in groups of eight blocks, where iterations are longer.
    pub gemv_unrolled_q6: u32,
    /// Share of the memory bandwidth that GEMV reaches if each workgroup quantises a row of x;
    /// `None` if it depends on the format. Inline quantisation was faster than a separate launch
    /// below about 16 MB of weights. Through CUDA it was faster at 4.9 MB, and the share of
    /// [`Calibration::cuda`] sets the limit at 7 MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gemv_inline_quant_share: Option<f64>,
    /// Same as `gemv_inline_quant_share`, for a short row and 8-bit weights in pairs of blocks;
    /// used only if that share is set. Tokens/s through CUDA with it and with a separate launch:
    /// SmolLM2-135M 2,879 and 2,843, Qwen2.5-0.5B 2,521 and 2,473.
    pub gemv_inline_quant_short_share: f64,

    /// Minimum time of a tile of a GEMM without tensor cores, in seconds per 16 columns of the
    /// weight.
    pub tile_step_seconds: f64,
    /// Minimum time of a tile of a GEMM with cooperative matrices, in seconds per 32 columns
    /// of the weight.
    pub coop_step_seconds: f64,
    /// Same as `coop_step_seconds`, for a GEMM that dequantises its weights.
    pub coop_dequant_step_seconds: f64,
    /// Seconds that a fused epilogue adds to a GEMM with cooperative matrices, per tile of 128 x
    /// 128; proportionally fewer for smaller tiles.
    pub coop_epilogue_seconds: f64,
}

impl Default for Calibration {
    fn default() -> Calibration {
        Calibration::new()
    }
}

impl Calibration {
    /// Returns the defaults, as measured on an H200 through Vulkan.
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

    /// Returns the constants as measured on an H200 through CUDA, where launches overlap and NVRTC
    /// unrolls quickly.
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

    /// Checks that times and rates are positive, shares are above 0 and at most 1, and iteration
    /// counts are 1 to 16.
    ///
    /// # Errors
    /// A message with the field and its value.
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

    /// Returns whether every constant has its default.
    pub(super) fn is_default(&self) -> bool {
        *self == Calibration::new()
    }
}

impl DeviceProfile {
    /// Sets the capabilities and the calibration of a provider that runs kernels translated to CUDA
    /// C, whatever its name: launches overlap, barriers order device memory, tensor cores multiply
    /// int8 matrices too, the clock stays up between runs, and cuBLASLt is called if it is
    /// installed ([`DeviceProfile::has_gemm_library`]). Limits are unchanged.
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
