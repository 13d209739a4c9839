//! Methods, and the numbers that name them on the wire.

use tailcut::sealed::method_number;

/// A method of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    path: &'static str,
    id: MethodId,
    is_idempotent: bool,
}

/// A method's number: the 64-bit FNV-1a hash of its path, so that both ends know it without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MethodId(pub u64);

impl Method {
    /// A method by its path, `/package.Service/Method` as gRPC writes it. It runs once at most.
    pub const fn new(path: &'static str) -> Self {
        Self { path, id: MethodId::of(path), is_idempotent: false }
    }

    /// A method that may run more than once: routers may clone its calls and send them again.
    #[must_use]
    pub const fn idempotent(self) -> Self {
        Self { is_idempotent: true, ..self }
    }

    /// Its path.
    pub const fn path(&self) -> &'static str {
        self.path
    }

    /// Its number.
    pub const fn id(&self) -> MethodId {
        self.id
    }

    /// True if it may run more than once.
    pub const fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }
}

impl MethodId {
    /// The number of the method at `path`.
    pub const fn of(path: &str) -> Self {
        Self(method_number(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that the authors of the hash publish.
    #[test]
    fn an_id_is_the_fnv_1a_hash() {
        assert_eq!(MethodId::of(""), MethodId(0xcbf2_9ce4_8422_2325));
        assert_eq!(MethodId::of("a"), MethodId(0xaf63_dc4c_8601_ec8c));
        assert_eq!(MethodId::of("foobar"), MethodId(0x8594_4171_f739_67e8));
    }
}
