//! Setters of option structs, which may get more fields.

/// Adds to a struct one consuming setter for each of these public fields.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($type:ident { $($field:ident: $value:ty),* $(,)? }) => {
        impl $type {
            $(
                #[doc = concat!("Sets [`", stringify!($type), "::", stringify!($field), "`].")]
                #[must_use]
                pub fn $field(mut self, $field: $value) -> $type {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
