//! The lowest layer: numbers, names and platform differences that everything else is written in.
//!
//! Knows no graph, no device and no file. `platform` is the only place where native and
//! browser builds differ in types; modules above see one set of aliases.

mod class;
pub mod dim;
pub mod dtype;
pub mod layout;
mod mode;
pub mod platform;
mod sealed;
pub mod shape;
pub mod symbol;

/// `Debug` of a type whose parts are handles, or too many to read: its name and what says which one it is.
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

pub use class::ShapeClass;
pub use dim::Dim;
pub use dtype::{DType, Format};
pub use layout::Layout;
pub use mode::ComputeMode;
pub use sealed::Sealed;
pub use shape::Shape;
pub use symbol::{Symbol, SymbolValues};
