//! Uses your own shader as a tensor operation: `cargo run --example custom_kernel`.
//!
//! The folder `examples/packs/blur` contains the WGSL and a short manifest.

use std::path::Path;

use warploom::kernel::pack::Pack;
use warploom::{Runtime, Tensor};

fn main() -> warploom::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/packs/blur");
    // Mistakes in the shader or the manifest are reported here, with file and line.
    let blur = Pack::load(folder)?;

    let runtime = Runtime::auto()?;
    let image = Tensor::rand(&runtime, [480, 640], 1);
    // Sizes come from the operand; values of the uniform block are passed by name.
    let blurred = &Tensor::custom(&blur, &[&image], &[("radius", 4.0)])[0];

    // A result is a tensor like any other: this runs in the same submit as the kernel.
    let contrast = |image: &Tensor| (image.max(..) - image.min(..)).item::<f32>();
    println!("contrast before: {:.3}", contrast(&image)?);
    println!("contrast after:  {:.3}", contrast(blurred)?);
    Ok(())
}
