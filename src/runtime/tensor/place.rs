//! Source locations of operations.

use std::cell::Cell;
use std::panic::Location;

/// Source location of an operation.
pub(super) type Place = &'static Location<'static>;

thread_local! {
    /// Location of the operation whose parts are being recorded.
    static OUTER: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Returns the location of the caller's caller, or that of the operation of which the caller is a
/// part: operations that warploom records for a user's have the user's line.
#[track_caller]
pub(super) fn here() -> Place {
    OUTER.get().unwrap_or(Location::caller())
}

/// Runs `record`, whose operations are parts of the one at `at`.
pub(super) fn as_part_of<T>(at: Place, record: impl FnOnce() -> T) -> T {
    /// Restores the location, also if `record` panics.
    struct Restore(Option<Place>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OUTER.set(self.0);
        }
    }
    let _restore = Restore(OUTER.replace(Some(at)));
    record()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn outer() -> (Place, Place) {
        let at = here();
        (at, as_part_of(at, inner))
    }

    #[track_caller]
    fn inner() -> Place {
        here()
    }

    #[test]
    fn parts_have_the_line_of_the_whole() {
        let line = line!() + 1;
        let (whole, part) = outer();
        assert_eq!((whole.line(), part.line()), (line, line));
        let line = line!() + 1;
        let own = inner();
        assert_eq!(own.line(), line);
    }
}
