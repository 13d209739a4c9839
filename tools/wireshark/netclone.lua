-- NetClone as docs/protocol/netclone.md lays it down: the published format, at UDP ports 1000 and 2000.
--
-- wireshark -X lua_script:tools/wireshark/netclone.lua capture.pcap, or copy the file to Wireshark's personal Lua plugins.
--
-- `judge` makes the decisions of Packet::parse and Plain::parse in crates/wire in the same order and gives the same
-- reasons, and `summary` the line of their Display; tools/wireshark/check.sh holds both to it.

local netclone = Proto("netclone", "NetClone")

-- Written by `cargo xtask dissectors` from crates/wire, up to the next mark.
local wire = {
    PORT = 1000, PLAIN_PORT = 2000, HEADER_LEN = 28, TRAILER_LEN = 24, C_CLONE_LEN = 36, NO_CLONE_LEN = 32,
    SEQ_MAX = 100000000, SERVERS_MAX = 16,
    Header = {
        len = 28, op = { 0, 4 }, seq = { 4, 4 }, grp = { 8, 4 }, sid = { 12, 4 }, load = { 16, 4 },
        clo = { 20, 4 }, tidx = { 24, 4 },
    },
    Trailer = {
        len = 24, stamp = { 0, 8 }, address = { 8, 16 },
    },
    NoClone = {
        len = 32, op = { 0, 4 }, key = { 4, 4 }, trailer = { 8, 24 },
    },
    CClone = {
        len = 36, op = { 0, 4 }, key = { 4, 4 }, seq = { 8, 4 }, trailer = { 12, 24 },
    },
    Op = {
        Request = 0, Response = 1,
    },
    CloneMark = {
        Single = 0, Original = 1, Clone = 2,
    },
    Malformed = {
        Length = "shorter than the header, or of no length that there is",
        Op = "neither a request nor a response", Mark = "a clone mark above 2",
    },
    DropReason = {
        Unspecified = 0, Overload = 1, TooLarge = 2, TooOld = 3, Expired = 4, NoServer = 5, Application = 6,
        Uncertain = 7, Unvalidated = 8, Panicked = 9, Stopping = 10, Unanswered = 11, NoKey = 12,
    },
}
-- Written by hand again.

local header, trailer, no_clone, c_clone = wire.Header, wire.Trailer, wire.NoClone, wire.CClone
local HEADER_LEN, PACKET_LEN, R2P2_MAGIC = header.len, header.len + trailer.len, 0xcc
local ops = { [wire.Op.Request] = "REQUEST", [wire.Op.Response] = "RESPONSE" }
local marks = { [wire.CloneMark.Single] = "not cloned", [wire.CloneMark.Original] = "original", [wire.CloneMark.Clone] = "clone" }

local f = {
    summary = ProtoField.string("netclone.summary", "Summary"),
    reason = ProtoField.string("netclone.malformed", "Malformed"),
    op = ProtoField.uint32("netclone.op", "Operation", base.DEC, ops),
    seq = ProtoField.uint32("netclone.seq", "Request id", base.DEC),
    grp = ProtoField.uint32("netclone.grp", "Group", base.DEC),
    sid = ProtoField.uint32("netclone.sid", "Server id", base.DEC),
    load = ProtoField.uint32("netclone.load", "Waiting requests", base.DEC),
    clo = ProtoField.uint32("netclone.clo", "Clone mark", base.DEC, marks),
    tidx = ProtoField.uint32("netclone.tidx", "Filter table", base.DEC),
    key = ProtoField.uint32("netclone.key", "Key", base.DEC),
    id = ProtoField.bytes("netclone.c_clone.seq", "Client's request id"),
    stamp = ProtoField.bytes("netclone.stamp", "Client's stamp"),
    address = ProtoField.bytes("netclone.address", "Server's scratch"),
    payload = ProtoField.bytes("netclone.payload", "Payload"),
}
netclone.fields = {
    f.summary, f.reason, f.op, f.seq, f.grp, f.sid, f.load, f.clo, f.tidx, f.key, f.id, f.stamp, f.address, f.payload,
}
local malformed_expert = ProtoExpert.new("netclone.expert", "Malformed NetClone", expert.group.MALFORMED, expert.severity.ERROR)
netclone.experts = { malformed_expert }

local function at(tvb, field, from) return tvb((from or 0) + field[1], field[2]) end

local function judge(tvb, is_plain)
    local len = tvb:len()
    if is_plain then
        if len ~= no_clone.len and len ~= c_clone.len then return "Length" end
    elseif len < HEADER_LEN then
        return "Length"
    end
    if not ops[at(tvb, header.op):uint()] then return "Op" end
    if not is_plain and not marks[at(tvb, header.clo):uint()] then return "Mark" end
    return nil
end

local function summary(tvb, is_plain)
    local op = ops[at(tvb, header.op):uint()]
    if is_plain then
        local name = tvb:len() == no_clone.len and "NoClone" or "C-Clone"
        return string.format("%s %s key %d", name, op, at(tvb, no_clone.key):uint())
    end
    local text = string.format("NetClone %s seq %d", op, at(tvb, header.seq):uint())
    if op == "REQUEST" then
        text = text .. string.format(" grp %d", at(tvb, header.grp):uint())
    else
        text = text .. string.format(" server %d load %d", at(tvb, header.sid):uint(), at(tvb, header.load):uint())
    end
    local mark = at(tvb, header.clo):uint()
    if mark ~= wire.CloneMark.Single then text = text .. " " .. marks[mark] end
    local body_len = tvb:len() - (tvb:len() >= PACKET_LEN and PACKET_LEN or HEADER_LEN)
    return text .. string.format(" table %d, length %d", at(tvb, header.tidx):uint(), body_len)
end

local function add_trailer(tvb, tree, from)
    tree:add(f.stamp, at(tvb, trailer.stamp, from))
    tree:add(f.address, at(tvb, trailer.address, from))
end

local function add_plain(tvb, tree)
    tree:add(f.op, at(tvb, no_clone.op))
    tree:add(f.key, at(tvb, no_clone.key))
    if tvb:len() == c_clone.len then tree:add(f.id, at(tvb, c_clone.seq)) end
    add_trailer(tvb, tree, tvb:len() - trailer.len)
end

local function add_packet(tvb, tree)
    for _, name in ipairs({ "op", "seq", "grp", "sid", "load", "clo", "tidx" }) do tree:add(f[name], at(tvb, header[name])) end
    local from = HEADER_LEN
    if tvb:len() >= PACKET_LEN then
        add_trailer(tvb, tree, from)
        from = PACKET_LEN
    end
    if tvb:len() > from then tree:add(f.payload, tvb(from)) end
end

local function is_port(port) return port == wire.PORT or port == wire.PLAIN_PORT end

function netclone.dissector(tvb, pinfo, root)
    -- R2P2 may stand on such a port too.
    if tvb:len() > 0 and tvb(0, 1):uint() == R2P2_MAGIC then return 0 end
    pinfo.cols.protocol = "NetClone"
    local tree = root:add(netclone, tvb())
    local is_plain = (is_port(pinfo.dst_port) and pinfo.dst_port or pinfo.src_port) == wire.PLAIN_PORT
    local text
    if tvb:len() < tvb:reported_len() then
        text = string.format("NetClone cut by the capture to %d of %d B", tvb:len(), tvb:reported_len())
    else
        local reason = judge(tvb, is_plain)
        if reason then
            tree:add(f.reason, tvb(), reason):set_generated()
            tree:add_proto_expert_info(malformed_expert, "Malformed NetClone: " .. wire.Malformed[reason])
            text = "not NetClone: " .. reason
        else
            if is_plain then add_plain(tvb, tree) else add_packet(tvb, tree) end
            text = summary(tvb, is_plain)
        end
    end
    tree:add(f.summary, tvb(), text):set_generated()
    pinfo.cols.info = text
    return tvb:len()
end

local udp_ports = DissectorTable.get("udp.port")
udp_ports:add(wire.PORT, netclone)
udp_ports:add(wire.PLAIN_PORT, netclone)
