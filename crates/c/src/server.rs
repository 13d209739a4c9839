//! Servers, and requests in a handler's hands or kept for later.

use std::ffi::{c_char, c_void};
use std::ptr::{addr_of, addr_of_mut};

use tailcut::{AccessSource, KeySource, Responder, ServerBuilder, ServerHandle};

use crate::error::{Code, Failed, guard};
use crate::pointer;

/// A server on one port.
pub struct Server {
    /// Used by whoever runs it alone.
    server: tailcut::Server,
    /// Used by any thread.
    handle: ServerHandle,
    port: u16,
}

/// A request: in a handler's hands until the handler returns, or kept for later.
pub struct Request {
    /// `None` once it is answered.
    form: Option<Form>,
}

enum Form {
    /// Its lifetime ends when its handler returns, and with it the [`Request`].
    Here(tailcut::Request<'static>),
    Kept(Responder),
}

/// How a server is opened; all zero is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ServerOptions {
    /// Poll instead of sleeping: seven times less latency at the price of a core.
    pub busy_poll: bool,
    /// The file of the servers' keys, which seals the service, and is read again when it changes;
    /// null: the service is open. The text is not used after the server is open.
    pub seal_file: *const c_char,
    /// The file of a policy that says which clients may call what, by the numbers of their keys,
    /// likewise; null: all may call everything.
    pub access_file: *const c_char,
    /// When clients of an open service must show by a cookie that they receive at their addresses:
    /// `never`, `under-load` or `always`; null: never.
    pub cookies: *const c_char,
}

/// Answers a request, in microseconds, or keeps it by `tailcut_request_keep`. One that it does
/// neither with is refused. It must not unwind into the library: no exception of C++ may leave it.
pub type Handler = Option<unsafe extern "C" fn(request: *mut Request, context: *mut c_void)>;

/// Opens a server at `address`, HOST:PORT; port 0 takes a free one. `options` may be null.
///
/// # Safety
///
/// The texts end by a zero, and `server` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_server_open(
    address: *const c_char,
    options: *const ServerOptions,
    server: *mut *mut Server,
) -> Code {
    guard(|| {
        // SAFETY: as the header asks.
        let (address, options) =
            unsafe { (pointer::text(address, "the address")?, options.as_ref()) };
        let mut builder = ServerBuilder::new();
        if let Some(&ServerOptions { busy_poll, seal_file, access_file, cookies }) = options {
            if busy_poll {
                builder = builder.busy_poll();
            }
            // SAFETY: as the header asks.
            let (seal, access, cookies) = unsafe {
                let seal = pointer::file(seal_file, "the file of keys")?;
                let access = pointer::file(access_file, "the file of the policy")?;
                let is_said = !cookies.is_null();
                (seal, access, is_said.then(|| pointer::text(cookies, "cookies")).transpose()?)
            };
            if let Some(file) = seal {
                builder = builder.seal(KeySource::open(file).map_err(Failed::file)?);
            }
            if let Some(file) = access {
                builder = builder.access(AccessSource::open(file).map_err(Failed::file)?);
            }
            if let Some(when) = cookies {
                builder =
                    builder.cookies(when.parse().map_err(|error: String| Failed::argument(error))?);
            }
        }
        let opened = builder.bind(address)?;
        let (handle, port) = (opened.stop_handle(), opened.local_address().port());
        // SAFETY: as the header asks.
        unsafe { pointer::hand_out(server, Server { server: opened, handle, port }) }
    })
}

/// The server's port; 0 for null. From any thread.
///
/// # Safety
///
/// The server is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_server_port(server: *const Server) -> u16 {
    if server.is_null() {
        return 0;
    }
    // SAFETY: it is alive, and this field never changes; the one that another thread may be using
    // is not touched.
    unsafe { *addr_of!((*server).port) }
}

/// Answers requests by `handler` on this thread, until another one calls `tailcut_server_stop`.
///
/// # Safety
///
/// The server is alive, and no other thread runs it; the handler is what its type says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_server_run(
    server: *mut Server,
    handler: Handler,
    context: *mut c_void,
) -> Code {
    guard(|| {
        if handler.is_none() {
            return Err(Failed::argument("the handler is null"));
        }
        // SAFETY: as the header asks; other threads use other fields.
        let server = unsafe { inner(server)? };
        // SAFETY: the handler is what its type says.
        Ok(server.run(|request| unsafe { handle(handler, context, request) })?)
    })
}

/// Receives what has come, answers it by `handler`, and sends the replies; never waits. For a
/// program with a loop of its own.
///
/// # Safety
///
/// As `tailcut_server_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_server_turn(
    server: *mut Server,
    handler: Handler,
    context: *mut c_void,
) -> Code {
    guard(|| {
        if handler.is_none() {
            return Err(Failed::argument("the handler is null"));
        }
        // SAFETY: as the header asks.
        let server = unsafe { inner(server)? };
        // SAFETY: the handler is what its type says.
        Ok(server.turn(&mut |request| unsafe { handle(handler, context, request) })?)
    })
}

/// Has `tailcut_server_run` return, once what runs is answered. From any thread.
///
/// # Safety
///
/// The server is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_server_stop(server: *const Server) {
    guard(|| {
        if server.is_null() {
            return Err(Failed::argument("the server is null"));
        }
        // SAFETY: it is alive; the handle is for any thread, and the field that another one may be
        // using is not touched.
        let handle = unsafe { &*addr_of!((*server).handle) };
        handle.stop();
        Ok(())
    });
}

/// Closes a server that does not run. Null is allowed.
///
/// # Safety
///
/// It is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_server_free(server: *mut Server) {
    guard(|| {
        // SAFETY: as the header asks.
        drop(unsafe { pointer::take_back(server) });
        Ok(())
    });
}

/// A request's bytes, which are there until it is answered or kept; their number goes to `len`.
///
/// # Safety
///
/// The request is alive, and `len` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_request_bytes(
    request: *const Request,
    len: *mut usize,
) -> *const u8 {
    let mut bytes = std::ptr::null();
    guard(|| {
        // SAFETY: as the header asks.
        let (request, len) = unsafe {
            (pointer::reference(request, "the request")?, pointer::exclusive(len, "the length")?)
        };
        let found = request.form()?.bytes();
        *len = found.len();
        bytes = found.as_ptr();
        Ok(())
    });
    bytes
}

/// How long the client will still wait, ns; 0 when it does not, or the request is answered.
///
/// # Safety
///
/// The request is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_request_time_left_ns(request: *const Request) -> u64 {
    let mut left_ns = 0;
    guard(|| {
        // SAFETY: as the header asks.
        let left = unsafe { pointer::reference(request, "the request")? }.form()?.time_left();
        left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        Ok(())
    });
    left_ns
}

/// Whether the request may run more than once, here or elsewhere.
///
/// # Safety
///
/// The request is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_request_is_idempotent(request: *const Request) -> bool {
    let mut is_idempotent = false;
    guard(|| {
        // SAFETY: as the header asks.
        let request = unsafe { pointer::reference(request, "the request")? };
        is_idempotent = request.form()?.is_idempotent();
        Ok(())
    });
    is_idempotent
}

/// The number of the client's keys, which is who calls, also behind a router; -1 where the service
/// is open, or the request is answered.
///
/// # Safety
///
/// The request is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_request_identity(request: *const Request) -> i64 {
    let mut identity = -1;
    guard(|| {
        // SAFETY: as the header asks.
        let request = unsafe { pointer::reference(request, "the request")? };
        identity = request.form()?.identity().map_or(-1, i64::from);
        Ok(())
    });
    identity
}

/// Keeps a handler's request for later: the handler may return, and the answer may come from any
/// thread. What goes to `kept` is to be answered, or freed.
///
/// # Safety
///
/// The request is alive, and `kept` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_request_keep(
    request: *mut Request,
    kept: *mut *mut Request,
) -> Code {
    guard(|| {
        if kept.is_null() {
            return Err(Failed::argument("the place of the result is null"));
        }
        // SAFETY: as the header asks.
        let responder = match unsafe { pointer::exclusive(request, "the request")? }.take()? {
            Form::Here(request) => request.defer(),
            Form::Kept(responder) => responder,
        };
        // SAFETY: as the header asks.
        unsafe { pointer::hand_out(kept, Request { form: Some(Form::Kept(responder)) }) }
    })
}

/// Answers a request. One that was kept is still to be freed.
///
/// # Safety
///
/// The request is alive, and `reply` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_request_reply(
    request: *mut Request,
    reply: *const u8,
    len: usize,
) -> Code {
    guard(|| {
        // SAFETY: as the header asks.
        let (request, reply) =
            unsafe { (pointer::exclusive(request, "the request")?, pointer::bytes(reply, len)?) };
        match request.take()? {
            Form::Here(request) => Ok(request.reply(reply)?),
            Form::Kept(responder) => {
                responder.reply(reply);
                Ok(())
            }
        }
    })
}

/// Refuses a request with a number and a text for the caller, of which 1024 bytes arrive.
///
/// # Safety
///
/// The request is alive, and the text ends by a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_request_reject(
    request: *mut Request,
    code: u32,
    text: *const c_char,
) -> Code {
    guard(|| {
        // SAFETY: as the header asks.
        let (request, text) = unsafe {
            (pointer::exclusive(request, "the request")?, pointer::text(text, "the text")?)
        };
        match request.take()? {
            Form::Here(request) => Ok(request.reject(code, text)?),
            Form::Kept(responder) => {
                responder.reject(code, text);
                Ok(())
            }
        }
    })
}

/// Frees a request that was kept; one that is not answered is refused. Null is allowed.
///
/// # Safety
///
/// It came from `tailcut_request_keep` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_request_free(request: *mut Request) {
    guard(|| {
        // SAFETY: as the header asks.
        drop(unsafe { pointer::take_back(request) });
        Ok(())
    });
}

/// What runs of a server, apart from what other threads use.
///
/// # Safety
///
/// The server is null, or alive and run by this thread alone.
unsafe fn inner<'a>(server: *mut Server) -> Result<&'a mut tailcut::Server, Failed> {
    if server.is_null() {
        return Err(Failed::argument("the server is null"));
    }
    // SAFETY: it is alive, and nobody else uses this field.
    Ok(unsafe { &mut *addr_of_mut!((*server).server) })
}

/// Has C answer a request.
///
/// # Safety
///
/// The handler is what its type says.
unsafe fn handle(handler: Handler, context: *mut c_void, request: tailcut::Request<'_>) {
    // SAFETY: it is dropped below, before what it borrows: C may use it until the handler returns.
    let request: tailcut::Request<'static> = unsafe { std::mem::transmute(request) };
    let mut request = Request { form: Some(Form::Here(request)) };
    // SAFETY: as the caller says.
    handler.inspect(|handler| unsafe { handler(&raw mut request, context) });
    drop(request);
}

impl Request {
    fn form(&self) -> Result<&Form, Failed> {
        self.form.as_ref().ok_or_else(answered)
    }

    fn take(&mut self) -> Result<Form, Failed> {
        self.form.take().ok_or_else(answered)
    }
}

impl Form {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Here(request) => request.bytes(),
            Self::Kept(responder) => responder.bytes(),
        }
    }

    fn time_left(&self) -> std::time::Duration {
        match self {
            Self::Here(request) => request.time_left(),
            Self::Kept(responder) => responder.time_left(),
        }
    }

    fn is_idempotent(&self) -> bool {
        match self {
            Self::Here(request) => request.options().idempotent,
            Self::Kept(responder) => responder.options().idempotent,
        }
    }

    fn identity(&self) -> Option<u32> {
        match self {
            Self::Here(request) => request.identity(),
            Self::Kept(responder) => responder.identity(),
        }
    }
}

fn answered() -> Failed {
    Failed::from(tailcut::AnswerError::Gone)
}
