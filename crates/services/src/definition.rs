//! The definition of a service, from which its trait, its server and its client are made.

/// Defines a service: a trait for the server, what makes a [`Service`](crate::Service) of who
/// implements it, and a client.
///
/// ```text
/// tailcut_services::service! {
///     /// What the service is.
///     service TRAIT = "package.Service", server NAME, client NAME, codec PATH;
///     /// What the method does.
///     method(Request) -> Reply = "Method";
///     other(Request) -> Reply = "Other", idempotent;
/// }
/// ```
///
/// The strings are what goes over the wire, by a hash. A method is `idempotent` when it may run
/// more than once: routers may then clone its calls and send them again. `tailcut-build` writes one
/// such definition for each service of a .proto.
#[macro_export]
macro_rules! service {
    (
        $(#[$service_doc:meta])*
        service $service:ident = $name:literal, server $server:ident, client $client:ident, codec $codec:path;
        $($(#[$doc:meta])* $method:ident($request:ty) -> $reply:ty = $path:literal $(, $idempotent:ident)?;)*
    ) => {
        $(#[$service_doc])*
        pub trait $service: Send + Sync + 'static {
            $($(#[$doc])*
            fn $method(
                &self,
                request: $crate::Request<$request>,
            ) -> impl ::core::future::Future<
                Output = ::core::result::Result<$crate::Response<$reply>, $crate::Status>,
            > + Send;)*
        }

        #[doc = concat!("Serves [`", stringify!($service), "`].")]
        #[derive(Debug)]
        pub struct $server<T>(::std::sync::Arc<T>);

        #[doc = concat!("Calls a server of [`", stringify!($service), "`].")]
        #[derive(Clone, Debug)]
        pub struct $client<T = $crate::Channel>(T);

        const _: () = {
            static METHODS: &[$crate::Method] =
                &[$($crate::Method::new(concat!("/", $name, "/", $path))$(.$idempotent())?),*];

            #[allow(non_camel_case_types, reason = "the methods, to count them")]
            enum Place { $($method),* }

            impl<T: $service> $server<T> {
                /// Serves by `handler`.
                pub fn new(handler: T) -> Self {
                    Self(::std::sync::Arc::new(handler))
                }

                /// Serves by a handler that others have too.
                pub fn from_arc(handler: ::std::sync::Arc<T>) -> Self {
                    Self(handler)
                }
            }

            impl<T: $service> $crate::Service for $server<T> {
                fn methods(&self) -> &'static [$crate::Method] {
                    METHODS
                }

                fn call(&self, method: usize, incoming: $crate::Incoming) -> $crate::Answering {
                    let handler = self.0.clone();
                    $(if method == Place::$method as usize {
                        return ::std::boxed::Box::pin($crate::answer::<$codec, $request, $reply, _>(
                            incoming,
                            move |request| async move { handler.$method(request).await },
                        ));
                    })*
                    unreachable!("the method is one of {}'s", $name)
                }
            }

            impl $client {
                /// A client of the server or router at `target`, for tasks, with the defaults of
                /// [`Channel::connect`]($crate::Channel::connect).
                ///
                /// # Errors
                ///
                /// As [`Channel::connect`]($crate::Channel::connect).
                pub async fn connect(
                    target: impl ::std::net::ToSocketAddrs + ::core::fmt::Debug,
                ) -> ::core::result::Result<Self, $crate::Error> {
                    $crate::Channel::connect(target).map(Self)
                }
            }

            impl<T: $crate::Transport> $client<T> {
                /// A client over what carries its calls.
                pub fn new(transport: T) -> Self {
                    Self(transport)
                }

                $($(#[$doc])*
                pub fn $method(
                    &self,
                    request: impl $crate::IntoRequest<$request>,
                ) -> T::Call<'_, $codec, $reply> {
                    let method = &METHODS[Place::$method as usize];
                    $crate::Transport::call::<$codec, $request, $reply>(
                        &self.0,
                        method,
                        $crate::IntoRequest::into_request(request),
                    )
                })*
            }
        };
    };
}
