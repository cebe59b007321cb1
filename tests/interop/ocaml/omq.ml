(* The message-queue protocol, version one, as its author describes it: the types, their derived converters, and the
   bytes of both directions. Nothing in here knows which broker it talks to. *)

open Sexplib.Std

module Replay = struct
  type t = From_beginning | From_message of int64 | From_current [@@deriving sexp]
end

module Client = struct
  type t =
    | Connect of int * string
    | Subscribe of string * Replay.t
    | Unsubscribe of string
    | Ack of float
  [@@deriving sexp]
end

module Topic = struct
  type t = { id : int; topic : string } [@@deriving sexp]
end

module Server = struct
  type message = { id : int64; topic_id : int; body : string }

  type t =
    | Error of string
    | Ping of int
    | Message of message
    | Subscribed of Topic.t
    | Unsubscribed of Topic.t
end

exception Violation of string

let violation format = Printf.ksprintf (fun text -> raise (Violation text)) format

(* How a command is written. All of them are read back as the same command. *)
type form =
  | Plain  (* to_string: no blank around what is quoted *)
  | Hum  (* to_string_hum: lines of 80 columns, also inside a quoted atom *)
  | Bare  (* to_string, and no newline after it: Async's write_sexp ends no line after a list *)

let command_text form command =
  let sexp = Client.sexp_of_t command in
  match form with
  | Plain -> Sexplib.Sexp.to_string sexp ^ "\n"
  | Hum -> Sexplib.Sexp.to_string_hum sexp ^ "\n"
  | Bare -> Sexplib.Sexp.to_string sexp

let version_bytes version =
  let bytes = Bytes.create 8 in
  Bytes.set_int64_be bytes 0 version;
  Bytes.to_string bytes

let unsigned32 text at = Int32.to_int (String.get_int32_be text at) land 0xFFFFFFFF

let topic_of payload = Topic.t_of_sexp (Sexplib.Sexp.of_string payload)

(* A whole frame without its length: the type, then what depends on it. *)
let server_of_frame frame =
  let size = String.length frame in
  if size < 1 then violation "a frame without a type";
  let payload = String.sub frame 1 (size - 1) in
  match Char.code frame.[0] with
  | 0 -> Server.Error payload
  | 1 when size = 5 -> Server.Ping (unsigned32 frame 1)
  | 2 when size >= 13 ->
      let body = String.sub frame 13 (size - 13) in
      Server.Message { id = String.get_int64_be frame 1; topic_id = unsigned32 frame 9; body }
  | 3 -> Server.Subscribed (topic_of payload)
  | 4 -> Server.Unsubscribed (topic_of payload)
  | kind -> violation "a frame of type %d and %d bytes" kind size

let read_frame channel =
  let size = unsigned32 (really_input_string channel 4) 0 in
  really_input_string channel size
