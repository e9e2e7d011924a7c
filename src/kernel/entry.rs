//! What a row of the catalogue says of its kernel.

use super::catalogue::{Entry, family_formats};
use crate::base::{DType, Format};

impl Entry {
    /// Place of a parameter in the block.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| *p == name)
    }

    /// Whether it is a product with a weight matrix, whose attached segments say which rows they take.
    pub fn is_linear(&self) -> bool {
        self.name.starts_with("matvec_")
            || matches!(self.name, "matmul_*" | "matmul_coop_*" | "scaled_rows")
    }

    /// Whether it is there for cooperative matrices, which few devices have.
    pub fn is_cooperative(&self) -> bool {
        matches!(self.name, "attn_coop" | "matmul_coop_*" | "matmul_halves" | "round_half")
    }

    /// Whether what its segments read is fetched before the first product of several leaves.
    pub fn fetches(&self) -> bool {
        self.name == "matmul_coop_*"
    }

    /// Whether the CPU has a function for it: making operands apart from the product is for GPUs.
    pub fn is_on_cpu(&self) -> bool {
        let other = matches!(
            self.name,
            "round_codes" | "matvec_codes_*" | "half_weights_*" | "scaled_rows"
        );
        !self.is_cooperative() && !other
    }

    /// Whether it reads few rows at a time, each whole: only then it can normalise them.
    pub fn takes_norm(&self) -> bool {
        matches!(self.name, "matvec_*" | "matvec_int8_*" | "round_codes")
    }

    /// The weight formats that a family has kernels for.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        let any = matches!(self.name, "matvec_*" | "matmul_*" | "gather_rows_*");
        let halved = self.name == "half_weights_*";
        let bf16 = Format::Plain(DType::BF16);
        family_formats()
            .filter(move |format| any || format.is_quantised() || halved && *format == bf16)
    }

    /// Words of the parameter block: uniform blocks are padded to 16 bytes.
    pub fn param_words(&self) -> u32 {
        (self.params.len() as u32).next_multiple_of(4)
    }
}
