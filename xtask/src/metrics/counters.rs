//! Counters: fields of structs, with their docs.

use anyhow::{Context, Result, bail, ensure};
use syn::{Attribute, Expr, Fields, Item, Lit, Meta, Type};

use super::table;
use crate::tree::Tree;

/// Counters that are told of together.
struct Group {
    heading: &'static str,
    about: &'static str,
    sources: &'static [Source],
}

/// A struct of counters, or an enum whose variants are counted.
struct Source {
    path: &'static str,
    item: &'static str,
    /// Prefix of a field's name.
    prefix: &'static str,
    /// Fields that are counted under another name.
    renamed: &'static [(&'static str, &'static str)],
    /// The only fields that are counters; empty where all are.
    only: &'static [&'static str],
}

/// The section.
pub(super) fn section(tree: &Tree) -> Result<String> {
    let mut text = ABOUT.to_owned();
    for Group { heading, about, sources } in GROUPS {
        let mut rows = Vec::new();
        for source in *sources {
            rows.extend(rows_of(tree, source)?);
        }
        text.push_str(&format!(
            "### {heading}\n\n{about}\n\n{}\n",
            table(&["counter", "counts"], &rows)
        ));
    }
    for (heading, about, layout) in XDP {
        let names = xdp_names(tree, layout)?.join("`, `");
        text.push_str(&format!("### {heading}\n\n{about}\n\n`{names}`.\n\n"));
    }
    Ok(text)
}

/// The names of what a program in the kernel counts.
fn xdp_names(tree: &Tree, layout: &str) -> Result<Vec<String>> {
    let names = tree.items(layout)?.iter().find_map(|item| match item {
        Item::Const(item) if item.ident == "COUNT_NAMES" => Some(&*item.expr),
        _ => None,
    });
    let Some(Expr::Array(names)) = names else { bail!("{layout} has no COUNT_NAMES") };
    let names = names.elems.iter().filter_map(|name| match name {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(name) => Some(name.value()),
            _ => None,
        },
        _ => None,
    });
    Ok(names.collect())
}

fn rows_of(tree: &Tree, source: &Source) -> Result<Vec<Vec<String>>> {
    let Source { path, item, prefix, renamed, only } = source;
    let named = named_docs(tree, path, item)?;
    let counted =
        named.into_iter().filter(|(name, _)| only.is_empty() || only.contains(&name.as_str()));
    let rows = counted.map(|(name, doc)| {
        let other = renamed.iter().find(|(field, _)| *field == name);
        let name =
            other.map_or_else(|| format!("{prefix}{name}"), |(_, other)| (*other).to_owned());
        Ok(vec![format!("`{name}`"), resolved(tree, &doc)?])
    });
    rows.collect()
}

/// Names and docs of the counters of a struct, or of an enum's variants.
fn named_docs(tree: &Tree, path: &str, name: &str) -> Result<Vec<(String, String)>> {
    let found = tree.items(path)?.iter().find_map(|item| match item {
        Item::Struct(item) if item.ident == name => Some(fields(&item.fields)),
        Item::Enum(item) if item.ident == name => {
            let variants = item.variants.iter();
            Some(
                variants
                    .map(|variant| (snake(&variant.ident.to_string()), doc(&variant.attrs)))
                    .collect(),
            )
        }
        _ => None,
    });
    let found: Vec<(String, String)> = found.with_context(|| format!("{path} has no {name}"))?;
    for (field, doc) in &found {
        ensure!(!doc.is_empty(), "{path}: {name}.{field} has no doc for docs/metrics.md");
    }
    Ok(found)
}

fn fields(fields: &Fields) -> Vec<(String, String)> {
    let is_count = |kind: &Type| matches!(kind, Type::Path(path) if path.path.is_ident("u64"));
    let counters = fields.iter().filter(|field| is_count(&field.ty));
    let named =
        counters.filter_map(|field| Some((field.ident.as_ref()?.to_string(), doc(&field.attrs))));
    named.collect()
}

/// A doc, on one line.
pub(super) fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// A doc without links; one that is nothing but the name of a refusal of wire is that one's doc.
fn resolved(tree: &Tree, doc: &str) -> Result<String> {
    if let Some(variant) =
        doc.strip_prefix("[`Malformed::").and_then(|rest| rest.strip_suffix("`]."))
    {
        let variants = named_docs(tree, PACKET, "Malformed")?;
        let meant = variants.into_iter().find(|(name, _)| *name == snake(variant));
        return Ok(meant.with_context(|| format!("no Malformed::{variant}"))?.1);
    }
    let mut text = doc.replace("[`", "`").replace("`]", "`");
    // What a link leads to.
    while let Some((before, rest)) = text.split_once("`(") {
        let after = rest.split_once(')').map_or("", |(_, after)| after).to_owned();
        text = format!("{before}`{after}");
    }
    Ok(text)
}

/// `TooLarge` as `too_large`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for (place, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && place > 0 {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// The programs in the kernel: heading, what is said of the counters, and where their names are.
const XDP: [(&str, &str, &str); 2] = [
    ("The router's XDP program", XDP_ROUTER, "crates/net/src/ebpf/router/layout.rs"),
    ("NetClone's switch in XDP", XDP_CLONER, "crates/net/src/ebpf/cloner/layout.rs"),
];

const XDP_ROUTER: &str = "Of `route --dataplane xdp`; [its page](dataplane.md#what-is-placed-where) says what each counts. Those of \
`xdp_dropped_` are named after what was wrong with the packet, as `malformed_` of the router; `xdp_others` are packets for somebody else.";

const XDP_CLONER: &str = "Of `route --transport netclone --dataplane xdp`; \
[its page](dataplane.md#the-cloner-netclones-switch-in-xdp) says what each counts.";

const PACKET: &str = "crates/wire/src/r2p2/packet.rs";

const ABOUT: &str = "\
## Counters

Each counter only rises. Its name is the same in the report at the end, in the JSON of `control status` and in `/metrics`, where
it is prefixed with `tailcut_COMMAND_` and followed by `_total` (bytes come last: `udp_bytes_in` is `udp_in_bytes_total`). Counters of
one half of an endpoint begin with Client or Server.

";

const fn all(path: &'static str, item: &'static str, prefix: &'static str) -> Source {
    Source { path, item, prefix, renamed: &[], only: &[] }
}

const GROUPS: &[Group] = &[
    Group {
        heading: "Endpoints of R2P2 and Homa",
        about: "Of `serve`, `bridge` and `gateway`. Refused requests are counted by reason as `drop_...`, malformed datagrams as `malformed`.",
        sources: &[
            all("crates/proto/src/call/counters.rs", "Counters", ""),
            all("crates/wire/src/r2p2/header.rs", "DropReason", "drop_"),
        ],
    },
    Group {
        heading: "Endpoints of R2P2",
        about: "In addition, over R2P2:",
        sources: &[all("crates/proto/src/r2p2/metrics.rs", "Metrics", "")],
    },
    Group {
        heading: "Endpoints of Homa",
        about: "In addition, over Homa:",
        sources: &[all("crates/proto/src/homa/metrics.rs", "Metrics", "")],
    },
    Group {
        heading: "Services over TCP, TLS and UDP",
        about: "Of `serve`.",
        sources: &[Source {
            renamed: &[("replies", "replied"), ("draining", "refused_draining")],
            ..all("crates/cli/src/serve/app.rs", "HandlerCounts", "")
        }],
    },
    Group {
        heading: "The dispatcher",
        about: "Of `serve` with workers that are threads.",
        sources: &[
            Source {
                renamed: &[("dispatched", "dispatched"), ("wakes", "worker_wakes")],
                ..all("crates/net/src/dispatch/metrics.rs", "Counts", "dispatch_")
            },
            Source {
                only: &["worker_sleeps"],
                ..all("crates/net/src/dispatch/metrics.rs", "Metrics", "")
            },
        ],
    },
    Group {
        heading: "Short requests in place",
        about: "Of a program's own `Server::run_workers`: `in_place` of `ServerHandle::dispatch_metrics`.",
        sources: &[all("crates/net/src/dispatch/metrics.rs", "InPlaceCounts", "in_place_")],
    },
    Group {
        heading: "The router",
        about: "Of `route`.",
        sources: &[
            all("crates/proto/src/router/metrics.rs", "RouterMetrics", ""),
            all("crates/proto/src/router/metrics.rs", "Refused", "refused_"),
            all("crates/proto/src/router/metrics.rs", "MalformedCounts", "malformed_"),
        ],
    },
    Group {
        heading: "Sealed services",
        about: "Of every endpoint, and of routers of R2P2; all are 0 without `--seal`.",
        sources: &[all("crates/proto/src/sealed/mod.rs", "SealMetrics", "seal_")],
    },
    Group {
        heading: "The NetClone switch",
        about: "Of `route --transport netclone`.",
        sources: &[all("crates/proto/src/netclone/mod.rs", "SwitchMetrics", "")],
    },
    Group {
        heading: "The bridge",
        about: "Of `bridge`: what became of requests, and of its connections to the server.",
        sources: &[
            Source {
                renamed: &[("server_errors", "server_errors"), ("outages", "server_outages")],
                ..all("crates/cli/src/bridge/service.rs", "Counts", "bridge_")
            },
            Source {
                renamed: &[("sent", "server_requests")],
                ..all("crates/bridge/src/pool.rs", "PoolMetrics", "server_")
            },
        ],
    },
    Group {
        heading: "The gateway",
        about: "Of `gateway`.",
        sources: &[Source {
            renamed: &[
                ("clients", "clients"),
                ("clients_lost", "clients_lost"),
                ("again", "gateway_called_again"),
                ("ended_memory", "clients_ended_memory"),
                ("ended_partial", "clients_ended_partial"),
                ("ended_unread", "clients_ended_unread"),
                ("ended_idle", "clients_ended_idle"),
            ],
            ..all("crates/cli/src/gateway/desk.rs", "Counts", "gateway_")
        }],
    },
    Group {
        heading: "Ports",
        about: "Of every port, with `kernel_drops`: datagrams that the kernel dropped because the receive buffer was full or a checksum wrong. Over IP the names begin with `ip_` instead of `udp_`.",
        sources: &[
            all("crates/net/src/datapath/config.rs", "UdpMetrics", "udp_"),
            all("crates/net/src/datapath/ip.rs", "Strays", "ip_"),
        ],
    },
    Group {
        heading: "Ports over AF_XDP",
        about: "In addition, with `--datapath xdp:IF`.",
        sources: &[
            all("crates/net/src/datapath/xdp/config.rs", "XdpMetrics", "xdp_"),
            all("crates/net/src/datapath/xdp/config.rs", "RingMetrics", "xdp_"),
        ],
    },
    Group {
        heading: "Raw sends",
        about: "Of `route --forward keep`, which sends from its clients' addresses.",
        sources: &[all("crates/net/src/raw.rs", "RawMetrics", "raw_")],
    },
    Group {
        heading: "Connections",
        about: "Of `serve` over TCP and TLS, of `bridge` and of `gateway`.",
        sources: &[all("crates/net/src/stream/mod.rs", "StreamMetrics", "stream_")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "struct Counts { /// Requests taken, see\n /// [`Request`](x::Request) and [`Reply`].\n taken: u64, shares: [u64; 2] }";

    #[test]
    fn a_counter_has_its_prefix_and_its_doc() {
        let tree = Tree::from([("a.rs", FILE)]);
        let rows = rows_of(&tree, &all("a.rs", "Counts", "x_")).unwrap();
        assert_eq!(rows, [["`x_taken`", "Requests taken, see `Request` and `Reply`."]]);
    }

    #[test]
    fn a_counter_without_a_doc_is_refused() {
        let tree = Tree::from([("a.rs", "struct Counts { taken: u64 }")]);
        assert!(rows_of(&tree, &all("a.rs", "Counts", "")).is_err());
    }

    #[test]
    fn a_refusal_of_wire_is_looked_up() {
        let tree = Tree::from([(PACKET, "enum Malformed { /// Too short.\n HeaderSize }")]);
        assert_eq!(resolved(&tree, "[`Malformed::HeaderSize`].").unwrap(), "Too short.");
    }
}
