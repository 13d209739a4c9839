//! The members of a network by their places, which need not begin at 0.

use std::ops::{Index, IndexMut};

use super::Member;

/// Members at adjacent places.
#[derive(Debug)]
pub(super) struct Members<N> {
    /// Place of the first.
    first: usize,
    members: Vec<Member<N>>,
}

impl<N> Members<N> {
    /// No members yet, of which the first will stand at a place.
    pub(super) fn from(first: usize) -> Self {
        Self { first, members: Vec::new() }
    }

    /// Place of the next one.
    pub(super) fn end(&self) -> usize {
        self.first + self.members.len()
    }

    pub(super) fn push(&mut self, member: Member<N>) {
        self.members.push(member);
    }
}

impl<N> Default for Members<N> {
    fn default() -> Self {
        Self::from(0)
    }
}

impl<N> Index<usize> for Members<N> {
    type Output = Member<N>;

    fn index(&self, place: usize) -> &Member<N> {
        &self.members[place - self.first]
    }
}

impl<N> IndexMut<usize> for Members<N> {
    fn index_mut(&mut self, place: usize) -> &mut Member<N> {
        &mut self.members[place - self.first]
    }
}
