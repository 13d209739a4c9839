//! The functions of Redis that the module calls, and the types of what they take.
//!
//! Redis hands a module one function, by which it asks for all others by name; `redismodule.h` does
//! so in C. These are the declarations of Redis 7.0's, which later ones and Valkey keep. Whatever
//! needs unsafe code is here: what is exported is safe, because only Redis can make a [`Context`],
//! and only while it is in one of our functions.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// Context that Redis lends one of our functions while that runs.
#[derive(Debug)]
#[repr(transparent)]
pub struct Context<'a>(NonNull<c_void>, PhantomData<&'a mut c_void>);

/// Context of Redis for the fields of INFO.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Info<'a>(NonNull<c_void>, PhantomData<&'a mut c_void>);

/// The words behind the module's path.
#[derive(Debug)]
#[repr(transparent)]
pub struct Arguments<'a>(*const *mut c_void, PhantomData<&'a c_void>);

/// An event of the server, as Redis passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ServerEvent {
    /// Number of the event.
    id: u64,
    /// The version of what it comes with.
    version: u64,
}

impl ServerEvent {
    /// The server is about to end.
    pub(crate) const SHUTDOWN: Self = Self { id: 5, version: 1 };
    /// A turn of the event loop.
    pub(crate) const EVENT_LOOP: Self = Self { id: 15, version: 1 };
    /// Part of [`ServerEvent::EVENT_LOOP`] before its sleep.
    pub(crate) const BEFORE_SLEEP: u64 = 0;
}

/// Is called for a descriptor that is ready.
pub(crate) type ReadyFn = extern "C" fn(fd: c_int, data: *mut c_void, mask: c_int);
/// Is called at an event of the server.
pub(crate) type EventFn = extern "C" fn(Context<'_>, ServerEvent, subevent: u64, *mut c_void);
/// Is called for INFO.
pub(crate) type InfoFn = extern "C" fn(Info<'_>, for_crash_report: c_int);

/// Success, to Redis.
pub(crate) const OK: c_int = 0;
/// Failure, to Redis.
pub(crate) const FAILED: c_int = 1;

/// Readiness of a descriptor.
pub(crate) const READABLE: c_int = 1;
/// There is room for what is to be sent.
pub(crate) const WRITABLE: c_int = 2;

/// Flag of a server: commands are written to a log.
const FLAG_AOF: c_int = 1 << 6;
/// It is one of a cluster.
const FLAG_CLUSTER: c_int = 1 << 5;

/// Redis' functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Api(&'static Table);

/// A context that outlives the function that it was made in.
#[derive(Debug)]
pub(crate) struct Detached {
    /// Redis' functions.
    api: Api,
    /// The context; freed when this is dropped.
    raw: NonNull<c_void>,
    /// The user that it has, if it has one.
    user: Option<User>,
}

/// A user of Redis' access control lists. Until the next command that may delete one.
#[derive(Debug)]
pub(crate) struct User {
    /// Redis' functions.
    api: Api,
    /// The user; freed when this is dropped.
    raw: NonNull<c_void>,
}

/// Under which rules a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Those of the context's user, those for commands in scripts, and those of memory.
    Script,
    /// Those of [`Rules::Script`] but for commands in scripts: for scripts, which have them checked
    /// themselves.
    Plain,
    /// None: the module asks for itself.
    Own,
}

/// The version of the protocol that a reply is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// RESP2.
    Resp2,
    /// RESP3.
    Resp3,
}

/// Declares the table of functions, and how it is read.
macro_rules! table {
    ($($name:ident: $symbol:literal, $kind:ty;)*) => {
        /// Redis' functions, by our names.
        #[derive(Debug)]
        struct Table {
            $(
                #[doc = $symbol]
                $name: $kind,
            )*
        }

        impl Table {
            /// Asks for all of them; the first that there is none of, otherwise.
            fn read(context: &Context<'_>) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!("RedisModule_", $symbol, "\0");
                        let found = look_up(context, symbol).ok_or($symbol)?;
                        // SAFETY: a pointer to a function has the size of any other, and Redis
                        // declares the function of this name with this type.
                        unsafe { mem::transmute_copy::<NonNull<c_void>, $kind>(&found) }
                    },)*
                })
            }
        }
    };
}

/// A pointer to something of Redis'.
type Raw = *mut c_void;

table! {
    is_name_busy: "IsModuleNameBusy", unsafe extern "C" fn(*const c_char) -> c_int;
    set_module_attribs: "SetModuleAttribs", unsafe extern "C" fn(Raw, *const c_char, c_int, c_int);
    log: "Log", unsafe extern "C" fn(Raw, *const c_char, *const c_char, ...);
    string_ptr_len: "StringPtrLen", unsafe extern "C" fn(Raw, *mut usize) -> *const c_char;
    create_string: "CreateString", unsafe extern "C" fn(Raw, *const c_char, usize) -> Raw;
    free_string: "FreeString", unsafe extern "C" fn(Raw, Raw);
    call: "Call", unsafe extern "C" fn(Raw, *const c_char, *const c_char, ...) -> Raw;
    call_reply_proto: "CallReplyProto", unsafe extern "C" fn(Raw, *mut usize) -> *const c_char;
    free_call_reply: "FreeCallReply", unsafe extern "C" fn(Raw);
    get_context_flags: "GetContextFlags", unsafe extern "C" fn(Raw) -> c_int;
    avoid_replica_traffic: "AvoidReplicaTraffic", unsafe extern "C" fn() -> c_int;
    detached_context: "GetDetachedThreadSafeContext", unsafe extern "C" fn(Raw) -> Raw;
    free_detached_context: "FreeThreadSafeContext", unsafe extern "C" fn(Raw);
    set_context_user: "SetContextUser", unsafe extern "C" fn(Raw, Raw);
    user_by_name: "GetModuleUserFromUserName", unsafe extern "C" fn(Raw) -> Raw;
    free_user: "FreeModuleUser", unsafe extern "C" fn(Raw);
    subscribe: "SubscribeToServerEvent", unsafe extern "C" fn(Raw, ServerEvent, Option<EventFn>) -> c_int;
    event_loop_add: "EventLoopAdd", unsafe extern "C" fn(c_int, c_int, ReadyFn, Raw) -> c_int;
    event_loop_del: "EventLoopDel", unsafe extern "C" fn(c_int, c_int) -> c_int;
    register_info: "RegisterInfoFunc", unsafe extern "C" fn(Raw, InfoFn) -> c_int;
    info_add_section: "InfoAddSection", unsafe extern "C" fn(Raw, *const c_char) -> c_int;
    info_add_text: "InfoAddFieldCString", unsafe extern "C" fn(Raw, *const c_char, *const c_char) -> c_int;
    info_add_count: "InfoAddFieldULongLong", unsafe extern "C" fn(Raw, *const c_char, u64) -> c_int;
}

/// Redis' functions, once a module has been loaded.
static TABLE: OnceLock<Table> = OnceLock::new();

/// Asks Redis for a function; `symbol` ends with a zero.
fn look_up(context: &Context<'_>, symbol: &str) -> Option<NonNull<c_void>> {
    let symbol = CStr::from_bytes_with_nul(symbol.as_bytes()).ok()?;
    let mut found: Raw = ptr::null_mut();
    // SAFETY: a context begins with a pointer to the function that finds others, as
    // `RedisModule_Init` reads it; that writes a pointer to where its second argument points.
    let status = unsafe {
        let get: unsafe extern "C" fn(*const c_char, *mut Raw) -> c_int =
            mem::transmute_copy(context.0.cast::<Raw>().as_ref());
        get(symbol.as_ptr(), &raw mut found)
    };
    if status == OK { NonNull::new(found) } else { None }
}

impl Api {
    /// Makes the module known to Redis.
    ///
    /// # Errors
    ///
    /// That the module is loaded already, or the name of a function that this Redis lacks.
    pub(crate) fn open(context: &Context<'_>, name: &CStr, version: c_int) -> Result<Self, String> {
        let table = match TABLE.get() {
            Some(table) => table,
            None => {
                let table = Table::read(context).map_err(|name| {
                    format!("this Redis has no RedisModule_{name}: 7.0.6 or newer is needed")
                })?;
                TABLE.get_or_init(|| table)
            }
        };
        // SAFETY: the name ends with a zero.
        if unsafe { (table.is_name_busy)(name.as_ptr()) } != 0 {
            return Err("a module of this name is loaded".to_owned());
        }
        // SAFETY: the context is Redis', the name ends with a zero, and Redis copies it.
        unsafe { (table.set_module_attribs)(context.0.as_ptr(), name.as_ptr(), version, 1) };
        Ok(Self(table))
    }

    /// The functions, where a module has been loaded.
    pub(crate) fn opened() -> Option<Self> {
        TABLE.get().map(Self)
    }

    /// Writes a line to Redis' log: `level` is `warning`, `notice` or `verbose`.
    pub(crate) fn log(self, level: &CStr, text: &str) {
        let text = c_string(text);
        // SAFETY: a log takes no context as well as one; the format takes one string, which ends
        // with a zero.
        unsafe { (self.0.log)(ptr::null_mut(), level.as_ptr(), c"%s".as_ptr(), text.as_ptr()) };
    }

    /// The words behind the module's path, in UTF-8.
    pub(crate) fn arguments(self, arguments: &Arguments<'_>, count: c_int) -> Vec<String> {
        let count = usize::try_from(count).unwrap_or(0);
        let word = |index| {
            let mut len = 0;
            // SAFETY: Redis passes `count` strings, which live while its call of the module does.
            unsafe {
                let raw = *arguments.0.add(index);
                let start = (self.0.string_ptr_len)(raw, &raw mut len);
                let bytes = std::slice::from_raw_parts(start.cast::<u8>(), len);
                String::from_utf8_lossy(bytes).into_owned()
            }
        };
        (0..count).map(word).collect()
    }

    /// Has `function` called at events of one kind.
    ///
    /// # Errors
    ///
    /// Where Redis knows no such event.
    pub(crate) fn subscribe(
        self,
        context: &Context<'_>,
        event: ServerEvent,
        function: EventFn,
    ) -> Result<(), String> {
        // SAFETY: the context is Redis'; the function lives as long as the module does.
        let status = unsafe { (self.0.subscribe)(context.0.as_ptr(), event, Some(function)) };
        if status == OK { Ok(()) } else { Err(format!("no server event {}", event.id)) }
    }

    /// Has `function` called while a descriptor is ready for what `mask` names.
    ///
    /// # Errors
    ///
    /// Where Redis has no place for it, as `maxclients` counts.
    pub(crate) fn watch(self, fd: RawFd, mask: c_int, function: ReadyFn) -> Result<(), String> {
        // SAFETY: whatever the descriptor is, Redis only asks the kernel about it.
        let status = unsafe { (self.0.event_loop_add)(fd, mask, function, ptr::null_mut()) };
        let hint = "the event loop takes no more descriptors; raise maxclients";
        if status == OK { Ok(()) } else { Err(hint.to_owned()) }
    }

    /// Ends what [`Api::watch`] has begun.
    pub(crate) fn unwatch(self, fd: RawFd, mask: c_int) {
        // SAFETY: Redis looks for the descriptor among those that it watches.
        unsafe { (self.0.event_loop_del)(fd, mask) };
    }

    /// Has `function` called for INFO.
    pub(crate) fn register_info(self, context: &Context<'_>, function: InfoFn) {
        // SAFETY: the context is Redis'; the function lives as long as the module does.
        unsafe { (self.0.register_info)(context.0.as_ptr(), function) };
    }

    /// Writes the module's section of INFO: a text, and counts.
    pub(crate) fn write_info<'a>(
        self,
        info: &Info<'_>,
        text: (&str, &str),
        counts: impl Iterator<Item = (&'a str, u64)>,
    ) {
        let (name, value) = (c_string(text.0), c_string(text.1));
        // SAFETY: what Redis is writing INFO to, and strings that end with a zero, which it copies.
        unsafe {
            if (self.0.info_add_section)(info.0.as_ptr(), c"".as_ptr()) != OK {
                // Another section was asked for.
                return;
            }
            (self.0.info_add_text)(info.0.as_ptr(), name.as_ptr(), value.as_ptr());
        }
        for (name, count) in counts {
            let name = c_string(name);
            // SAFETY: as above.
            unsafe { (self.0.info_add_count)(info.0.as_ptr(), name.as_ptr(), count) };
        }
    }

    /// True if clients are asked to pause, as before a failover or the end: no write may run then.
    pub(crate) fn is_paused(self) -> bool {
        // SAFETY: it has no arguments.
        unsafe { (self.0.avoid_replica_traffic)() != 0 }
    }

    /// A user by its name.
    pub(crate) fn user(self, name: &str) -> Option<User> {
        let name = RedisString::new(self, name.as_bytes());
        // SAFETY: the string is Redis'.
        let raw = unsafe { (self.0.user_by_name)(name.raw) };
        Some(User { api: self, raw: NonNull::new(raw)? })
    }
}

impl Context<'_> {
    /// A context for later.
    pub(crate) fn detached(&self, api: Api) -> Detached {
        // SAFETY: the context is Redis', and what is made of it has a client of its own.
        let raw = unsafe { (api.0.detached_context)(self.0.as_ptr()) };
        let raw = NonNull::new(raw).expect("Redis ends where it has no memory");
        Detached { api, raw, user: None }
    }
}

impl Detached {
    /// Sets the user that runs the commands of this turn of the event loop.
    pub(crate) fn set_user(&mut self, user: User) {
        // SAFETY: both are Redis'. It keeps the pointer and reads it while a command runs; the user
        // lives until another takes its place.
        unsafe { (self.api.0.set_context_user)(self.raw.as_ptr(), user.raw.as_ptr()) };
        self.user = Some(user);
    }

    /// Runs a command, its name first, and appends its reply. False where Redis has none.
    pub(crate) fn call(
        &mut self,
        command: &[&[u8]],
        (rules, version): (Rules, Version),
        out: &mut Vec<u8>,
    ) -> bool {
        let Some((name, arguments)) = command.split_first() else { return false };
        let Ok(name) = CString::new(*name) else { return false };
        let table = self.api.0;
        let strings: Vec<RedisString> =
            arguments.iter().map(|argument| RedisString::new(self.api, argument)).collect();
        let raws: Vec<Raw> = strings.iter().map(|string| string.raw).collect();
        // SAFETY: the format says that an array of Redis' strings and its length follow, and both
        // do. Redis takes shares of the strings that it keeps. Its reply's bytes are read before it
        // is freed.
        unsafe {
            let format = format(rules, version).as_ptr();
            let raw = self.raw.as_ptr();
            let reply = (table.call)(raw, name.as_ptr(), format, raws.as_ptr(), raws.len());
            if reply.is_null() {
                return false;
            }
            let mut len = 0;
            let start = (table.call_reply_proto)(reply, &raw mut len);
            let has_bytes = !start.is_null();
            if has_bytes {
                out.extend_from_slice(std::slice::from_raw_parts(start.cast::<u8>(), len));
            }
            (table.free_call_reply)(reply);
            has_bytes
        }
    }

    /// True if commands are written to a log, before which no reply to a write may leave.
    pub(crate) fn is_logging(&self) -> bool {
        self.flags() & FLAG_AOF != 0
    }

    /// True if the server is one of a cluster.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.flags() & FLAG_CLUSTER != 0
    }

    fn flags(&self) -> c_int {
        // SAFETY: the context is Redis'.
        unsafe { (self.api.0.get_context_flags)(self.raw.as_ptr()) }
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        // SAFETY: it was made by Redis and has no other owner.
        unsafe { (self.api.0.free_detached_context)(self.raw.as_ptr()) };
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { (self.api.0.free_user)(self.raw.as_ptr()) };
    }
}

/// A string of Redis'.
struct RedisString {
    /// Redis' functions.
    api: Api,
    /// The string, of which this has one share.
    raw: Raw,
}

impl RedisString {
    fn new(api: Api, bytes: &[u8]) -> Self {
        // SAFETY: Redis copies the bytes, and takes no context as well as one.
        let raw =
            unsafe { (api.0.create_string)(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) };
        Self { api, raw }
    }
}

impl Drop for RedisString {
    fn drop(&mut self) {
        // SAFETY: the share is this one's.
        unsafe { (self.api.0.free_string)(ptr::null_mut(), self.raw) };
    }
}

/// Format of a call for Redis: `v` an array of arguments, `E` errors are replies, `!` replicas and
/// the log get it, `C` as the context's user, `S` as in a script, `M` not beyond `maxmemory`.
fn format(rules: Rules, version: Version) -> &'static CStr {
    match (rules, version) {
        (Rules::Script, Version::Resp2) => c"!ECSMv",
        (Rules::Script, Version::Resp3) => c"!ECSM3v",
        (Rules::Plain, Version::Resp2) => c"!ECMv",
        (Rules::Plain, Version::Resp3) => c"!ECM3v",
        (Rules::Own, Version::Resp2) => c"Ev",
        (Rules::Own, Version::Resp3) => c"E3v",
    }
}

/// A text as C knows it: up to its first zero.
fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).expect("there is no zero in it")
}
