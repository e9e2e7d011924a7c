//! The lowest layer: sizes, element types, names and platform differences that all other code uses.
//!
//! This module is independent of graphs and devices. Only `platform` contains types that differ
//! between native and browser builds; all other modules use its aliases.

mod checksummed;
mod class;
pub mod dim;
pub mod dtype;
pub mod layout;
mod mode;
pub mod oneshot;
pub mod platform;
pub mod shape;
pub mod symbol;

/// Implements `Debug` for a type whose fields are handles, or too numerous to read. Prints the name
/// of the type and the given fields.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as {
    ($type:ident $(<$life:lifetime>)?, |$this:ident| $($name:ident: $value:expr),*) => {
        impl $(<$life>)? std::fmt::Debug for $type $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($name), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}
#[doc(hidden)]
pub use debug_as;

pub use checksummed::Checksummed;
pub use class::ShapeClass;
pub use dim::Dim;
pub use dtype::{DType, Format};
pub use layout::Layout;
pub use mode::ComputeMode;
pub use shape::Shape;
pub use symbol::{Symbol, SymbolValues};
