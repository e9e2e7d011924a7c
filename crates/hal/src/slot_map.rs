//! A generational slot map: the id of a removed value is never valid again, even if its row is
//! reused.

/// Values keyed by index and generation.
pub struct Table<T> {
    rows: Vec<Row<T>>,
    free: Vec<u32>,
}

struct Row<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { rows: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Inserts a value and returns its index and generation.
    pub fn insert(&mut self, value: T) -> (u32, u32) {
        if let Some(index) = self.free.pop()
            && let Some(row) = self.rows.get_mut(index as usize)
        {
            row.value = Some(value);
            return (index, row.generation);
        }
        self.rows.push(Row { generation: 0, value: Some(value) });
        ((self.rows.len() - 1) as u32, 0)
    }

    /// Returns the value with this index and generation, unless it was removed.
    pub fn get(&self, index: u32, generation: u32) -> Option<&T> {
        let row = self.rows.get(index as usize)?;
        if row.generation == generation { row.value.as_ref() } else { None }
    }

    /// Returns the value with this index and generation mutably, unless it was removed.
    pub fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let row = self.rows.get_mut(index as usize)?;
        if row.generation == generation { row.value.as_mut() } else { None }
    }

    /// Removes and returns the value with this index and generation, unless it was removed before.
    pub fn remove(&mut self, index: u32, generation: u32) -> Option<T> {
        let row = self.rows.get_mut(index as usize)?;
        if row.generation != generation {
            return None;
        }
        let value = row.value.take()?;
        // A row is retired once its generations are exhausted.
        if let Some(next) = row.generation.checked_add(1) {
            row.generation = next;
            self.free.push(index);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_id_never_finds_the_next_owner() {
        let mut table = Table::default();
        let (index, first) = table.insert("a");
        assert_eq!(table.remove(index, first), Some("a"));
        assert_eq!(table.remove(index, first), None);
        let (again, second) = table.insert("b");
        assert_eq!((again, second), (index, first + 1));
        assert_eq!(table.get(index, first), None);
        assert_eq!(table.get_mut(index, second), Some(&mut "b"));
        assert_eq!(table.get(index + 1, 0), None);
    }
}
