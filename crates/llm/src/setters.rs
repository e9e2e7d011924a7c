//! Defines setters for option structs, which are non-exhaustive because they may get more fields.

/// Adds a consuming setter to a struct for each listed public field.
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
