//! Pointers of C as references, and values of ours as pointers.

use std::ffi::{CStr, c_char};

use crate::error::Failed;

/// A reference to what C has from us.
///
/// # Safety
///
/// The pointer is null, or one that a function of this library gave and that has not been freed.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failed> {
    // SAFETY: not null means alive, as the caller says.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// The same, to change it.
///
/// # Safety
///
/// As [`reference`], and nobody else uses it meanwhile.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Failed> {
    // SAFETY: not null means alive and ours alone, as the caller says.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(name))
}

/// Bytes of C; a null pointer has none.
///
/// # Safety
///
/// The pointer is null, or there are `len` bytes, which do not change meanwhile.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Failed> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null("the bytes")),
        // SAFETY: there are as many, as the caller says.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// A text of C.
///
/// # Safety
///
/// The pointer is null, or what it points to ends by a zero and does not change meanwhile.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failed> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it ends by a zero, as the caller says.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failed::argument(format!("{name} is not UTF-8")))
}

/// The name of a file; `None` where C gives none.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn file<'a>(
    pointer: *const c_char,
    name: &str,
) -> Result<Option<&'a str>, Failed> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    unsafe { text(pointer, name) }.map(Some)
}

/// Hands a value to C.
///
/// # Safety
///
/// `place` is null, or can be written.
pub(crate) unsafe fn hand_out<T>(place: *mut *mut T, value: T) -> Result<(), Failed> {
    // SAFETY: it can be written, as the caller says.
    let place = unsafe { place.as_mut() }.ok_or_else(|| null("the place of the result"))?;
    *place = Box::into_raw(Box::new(value));
    Ok(())
}

/// Takes back what C has from us; `None` for null.
///
/// # Safety
///
/// As [`exclusive`], and C does not use it again.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: it came from `hand_out`, as the caller says.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

fn null(name: &str) -> Failed {
    Failed::argument(format!("{name} is null"))
}
