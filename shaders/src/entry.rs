//! Properties of catalogue rows and of specs of catalogue kernels.

use super::catalogue::{Entry, ROUND_THREADS, family_formats};
use super::fusion::{Neighbours, OperandLayout};
use super::spec::AssetSpec;
use warploom_core::base::{ComputeMode, DType, Format};

/// Defines of the `matvec_prequant_*` variants that assume 32-lane subgroups.
const WAYS_OF_32: [&str; 5] = ["headers", "eights", "trits", "blocks", "several"];

/// Returns the rows of a build: a browser's have no descriptions, to reduce the size of the download.
pub(super) const fn shipped<const N: usize>(rows: &[Entry]) -> [Entry; N] {
    let mut all = [rows[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = rows[at];
        if cfg!(target_arch = "wasm32") {
            all[at].doc = "";
        }
        at += 1;
    }
    all
}

/// Returns the smallest subgroup size that a kernel supports, or 0 if it supports any.
pub fn subgroup_needed(asset: &AssetSpec) -> u32 {
    match asset.name.as_str() {
        // 32 lanes round a block of the quant epilogue, or share headers.
        _ if asset.has_wide_quant_epilogue()
            || asset.defines.iter().any(|d| WAYS_OF_32.contains(&d.as_str())) =>
        {
            ComputeMode::BLOCK as u32
        }
        "attn_subgroup"
        | "attn_subgroup_spans"
        | "attn_split_kv_fused"
        | "attn_split_kv_fused_spans" => 32,
        name if name.starts_with("matvec_mma_") => 32,
        // Eight neighbours round a block.
        "quantize_to_f16" => ROUND_THREADS,
        "quantize_activations" if asset.defines.iter().any(|define| define == "subgroup") => {
            ROUND_THREADS
        }
        _ => 0,
    }
}

/// Returns the largest subgroup size that a kernel supports, or `u32::MAX` if it supports any.
pub fn subgroup_most(asset: &AssetSpec) -> u32 {
    match asset.quant_epilogue_neighbours() {
        Some(Neighbours::Subgroup) => ComputeMode::BLOCK as u32,
        _ => u32::MAX,
    }
}

/// Returns whether a kernel runs many barrier-separated steps that each read memory. Such a kernel
/// gains if the compiler hoists loads of the next step above the barrier, and its launch time is
/// negligible.
pub fn reads_ahead(asset: &AssetSpec) -> bool {
    let name = asset.name.as_str();
    // Products between activations are often small.
    let product = name.starts_with("matmul_") && name != "matmul_batched";
    product
        || matches!(
            name,
            "attn_prefill" | "attn_coop" | "matmul_batched_tiled" | "matmul_batched_coop"
        )
}

/// Threads per multiprocessor at which each thread has 128 registers, enough to prefetch far ahead.
pub const AHEAD_THREADS: u32 = 512;
/// Same as [`AHEAD_THREADS`] for several rows of x, whose sums need 255 registers per thread.
const SEVERAL_THREADS: u32 = 256;
/// Number of columns above which a subgroup needs many iterations over a row.
const LONG_ROW: u32 = 4096;

/// Returns the number of workgroups that should fit on a multiprocessor at once (occupancy), which
/// bounds the registers per thread; 0 leaves it to the compiler. Without a bound, compilers save
/// registers by moving prefetches into the iteration that uses the data, which defeats them.
pub fn resident(asset: &AssetSpec) -> u32 {
    let has = |define: &str| asset.defines.iter().any(|d| d == define);
    let is = |name: &str| asset.name.starts_with(name);
    let Some(threads) = asset.get_u32("WG") else { return 0 };
    let long = asset.get_u32("K").is_some_and(|k| k > LONG_ROW);
    match threads {
        _ if is("matvec_prequant_") && asset.get_u32("M").is_some_and(|m| m > 1) => {
            (SEVERAL_THREADS / threads).max(1)
        }
        // Measured on an H200. With Q8_0x8 and Q5_K a thread has eight vec4s of weights in flight.
        ..=512
            if (is("matvec_prequant_q4_k") && has("headers")
                || is("matvec_prequant_q4_0x8") && has("blocks"))
                && !long =>
        {
            2
        }
        _ if (has("headers") || has("eights") || has("blocks")) && long => 1,
        _ if has("headers")
            || has("eights")
            || has("blocks")
            || has("trits")
            || is("matvec_mma_")
            || is("attn_split_kv_fused") =>
        {
            (AHEAD_THREADS / threads).max(1)
        }
        _ => 0,
    }
}

/// Suffixes of kernels that are another kernel's file with a define, which adds a binding; in the
/// order in which they are taken off a name.
pub(super) const SUFFIXES: [(&str, &str); 2] = [("_sinks", "sinks"), ("_spans", "spans")];

/// Returns whether the units of a format (`dequant_*`) have 32 weights, so that
/// `dequantize_to_f16_*` can decode them unit by unit.
pub fn has_units_of_32(format: Format) -> bool {
    use Format as F;
    matches!(
        format,
        F::Q2K
            | F::Q3K
            | F::Q4K
            | F::Q5K
            | F::Q6K
            | F::Q6Kx8
            | F::Q8_0x8
            | F::Q4_0x8
            | F::TQ2_0
            | F::I2S
    )
}

/// Returns the name of the kernel of which `name` is a variant with more bindings.
pub(super) fn plain_name(name: &str) -> &str {
    SUFFIXES.iter().fold(name, |name, (suffix, _)| name.strip_suffix(suffix).unwrap_or(name))
}

impl Entry {
    /// Returns whether specialisation constants are compiled into the kernel's text: for decode
    /// kernels, which are short, and for prefill kernels that compute many addresses.
    pub fn is_specialized(&self) -> bool {
        let name = plain_name(self.name);
        name.starts_with("matvec_")
            || matches!(
                name,
                "dequantize_to_f16_*"
                    | "expert_matvec_*"
                    | "expert_coop_*"
                    | "attn_decode"
                    | "attn_subgroup"
                    | "attn_split_kv_fused"
                    | "attn_split_kv"
                    | "attn_split_kv_reduce"
                    | "quantize_activations"
                    | "split_k_reduce"
                    | "matmul_f16_coop"
                    | "attn_coop"
            )
    }

    /// Returns the index of a parameter in the kernel's parameter block, if the kernel has that
    /// parameter.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| *p == name)
    }

    /// Returns whether the kernel multiplies by a weight matrix. Each epilogue segment of such a
    /// kernel specifies its rows of that matrix.
    pub fn is_linear(&self) -> bool {
        self.name.starts_with("matvec_")
            || matches!(self.name, "matmul_*" | "matmul_coop_*" | "split_k_reduce")
    }

    /// Returns whether the kernel is only for devices with cooperative matrices, which few have.
    pub fn is_cooperative(&self) -> bool {
        matches!(
            self.name,
            "attn_coop"
                | "matmul_coop_*"
                | "matmul_f16_coop"
                | "matmul_batched_coop"
                | "expert_coop_*"
                | "quantize_to_f16"
        )
    }

    /// Returns whether epilogue operands are loaded early: before the first of several results is
    /// stored, or while a result is still being accumulated.
    pub fn fetches(&self) -> bool {
        self.name.starts_with("matvec_") || self.name == "matmul_coop_*"
    }

    /// Returns whether the CPU provider has a function for the kernel. It has none for kernels that
    /// prepare or use operands in layouts of GPUs, or that are GPU variants of other kernels.
    pub fn is_on_cpu(&self) -> bool {
        let other = matches!(
            self.name,
            "quantize_activations"
                | "matvec_prequant_*"
                | "matvec_mma_*"
                | "dequantize_to_f16_*"
                | "split_k_reduce"
                | "expert_groups"
                | "matmul_batched_tiled"
                | "attn_subgroup"
                | "attn_subgroup_spans"
                | "attn_split_kv_fused"
                | "attn_split_kv_fused_spans"
        );
        !self.is_cooperative() && !other
    }

    /// Returns whether the kernel supports a fused norm, which requires that it reads only a few
    /// complete rows at a time.
    pub fn takes_norm(&self) -> bool {
        matches!(
            self.name,
            "matvec_*" | "matvec_int8_*" | "quantize_activations" | "quantize_to_f16"
        )
    }

    /// Returns whether the kernel supports a quant epilogue with this operand layout.
    pub fn supports_quant_epilogue(&self, form: &OperandLayout) -> bool {
        match form {
            OperandLayout::Codes { .. } => matches!(
                plain_name(self.name),
                "matvec_prequant_*"
                    | "matvec_mma_*"
                    | "attn_decode"
                    | "attn_subgroup"
                    | "attn_split_kv_fused"
                    | "attn_split_kv_reduce"
            ),
            OperandLayout::Halves(_) => self.name == "split_k_reduce",
        }
    }

    /// Returns the weight formats for which the family has kernels.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        let any =
            matches!(self.name, "matvec_*" | "matmul_*" | "gather_rows_*" | "expert_matvec_*");
        let tiles = self.name == "matvec_mma_*";
        let halved = self.name == "dequantize_to_f16_*";
        let bf16 = Format::Plain(DType::BF16);
        family_formats()
            .filter(move |format| any || format.is_quantised() || halved && *format == bf16)
            .filter(move |format| {
                use Format as F;
                !tiles || matches!(format, F::Q4K | F::Q6Kx8 | F::Q8_0x8 | F::Q4_0x8)
            })
    }

    /// Returns the number of bindings before the output; the bindings of a fusion follow them.
    pub fn before_output(&self) -> usize {
        self.bindings.len().saturating_sub(1)
    }

    /// Returns the number of words in the parameter block, padded to 16 bytes like any uniform
    /// block.
    pub fn param_words(&self) -> u32 {
        (self.params.len() as u32).next_multiple_of(4)
    }
}
