(* A client that does what its arguments say, in order, and prints what it is told, one JSON object per line.

     omq_client PORT [options] [steps]

     --version N        the version of the handshake; 1 unless told
     --name ID          the id in Connect; ocaml unless told
     --form FORM        how commands are written: plain (default), hum or bare; see omq.ml
     --pipeline         write the handshake, Connect and all commands at once, before anything is read
     --no-acks          leave pings unanswered

     subscribe TOPIC beginning|current|N     and wait for the answer
     unsubscribe TOPIC                       and wait for the answer
     receive N                               read until N more messages have come
     pings N                                 read until N more pings have come, from now on
     end                                     read until the server closes

   It ends with 0 when all steps are done, 1 when the server closed before, 2 when its version was refused, 3 when the
   server did what no server may do, 4 when nothing came for a minute. *)

open Omq

type seen = { mutable answers : int; mutable messages : int; mutable pings : int }

type t = {
  input : in_channel;
  output : out_channel;
  acks : bool;
  form : form;
  seen : seen;
  topics : (int, string) Hashtbl.t;  (* by id, as long as subscribed *)
  known : (int, string) Hashtbl.t;  (* by id, for ever *)
}

let quiet_seconds = 60

let hex text =
  let digits = Buffer.create (2 * String.length text) in
  String.iter (fun c -> Printf.bprintf digits "%02x" (Char.code c)) text;
  Buffer.contents digits

let json_string text =
  let escaped = Buffer.create (String.length text + 2) in
  let add = function
    | ('"' | '\\') as c -> Buffer.add_char escaped '\\'; Buffer.add_char escaped c
    | c when c < ' ' -> Printf.bprintf escaped "\\u%04x" (Char.code c)
    | c -> Buffer.add_char escaped c
  in
  String.iter add text;
  "\"" ^ Buffer.contents escaped ^ "\""

let say event fields =
  let pair (name, value) = Printf.sprintf ", \"%s\": %s" name value in
  Printf.printf "{\"event\": \"%s\"%s}\n%!" event (String.concat "" (List.map pair fields))

let send t text = output_string t.output text; flush t.output

let send_command t command = send t (command_text t.form command)

let say_topic event { Topic.id; topic } = say event [ ("id", string_of_int id); ("topic", json_string topic) ]

let subscribed t ({ Topic.id; topic } as whole) =
  (match Hashtbl.find_opt t.known id with
  | Some other when other <> topic -> violation "topic id %d was %S and is now %S" id other topic
  | _ -> ());
  Hashtbl.replace t.known id topic;
  Hashtbl.replace t.topics id topic;
  say_topic "subscribed" whole

let unsubscribed t ({ Topic.id; _ } as whole) =
  if not (Hashtbl.mem t.topics id) then violation "unsubscribed from topic id %d, which is not subscribed" id;
  Hashtbl.remove t.topics id;
  say_topic "unsubscribed" whole

let message t { Server.id; topic_id; body } =
  match Hashtbl.find_opt t.topics topic_id with
  | None -> violation "message %Ld of topic id %d, which is not subscribed" id topic_id
  | Some topic ->
      say "message" [ ("id", Int64.to_string id); ("topic", json_string topic); ("body", json_string (hex body)) ]

let take t =
  let seen = t.seen in
  match server_of_frame (read_frame t.input) with
  | Error text -> seen.answers <- seen.answers + 1; say "error" [ ("text", json_string text) ]
  | Subscribed topic -> seen.answers <- seen.answers + 1; subscribed t topic
  | Unsubscribed topic -> seen.answers <- seen.answers + 1; unsubscribed t topic
  | Message one -> seen.messages <- seen.messages + 1; message t one
  | Ping time ->
      seen.pings <- seen.pings + 1;
      say "ping" [ ("time", string_of_int time) ];
      if t.acks then send_command t (Ack (float_of_int time))

let rec until t reached = if not (reached ()) then (take t; until t reached)

type step = Tell of Client.t | Receive of int | Pings of int | End

let replay_of = function
  | "beginning" -> Replay.From_beginning
  | "current" -> Replay.From_current
  | number -> Replay.From_message (Int64.of_string number)

let rec steps_of = function
  | [] -> []
  | "subscribe" :: topic :: replay :: rest -> Tell (Subscribe (topic, replay_of replay)) :: steps_of rest
  | "unsubscribe" :: topic :: rest -> Tell (Unsubscribe topic) :: steps_of rest
  | "receive" :: count :: rest -> Receive (int_of_string count) :: steps_of rest
  | "pings" :: count :: rest -> Pings (int_of_string count) :: steps_of rest
  | "end" :: rest -> End :: steps_of rest
  | word :: _ -> failwith ("no step: " ^ word)

(* Answers and messages are counted from the beginning: messages may come while an answer is waited for. *)
let follow t ~pipeline steps =
  let answers = ref 0 and messages = ref 0 in
  let carry_out = function
    | Tell command ->
        incr answers;
        if not pipeline then send_command t command;
        until t (fun () -> t.seen.answers >= !answers)
    | Receive count -> messages := !messages + count; until t (fun () -> t.seen.messages >= !messages)
    | Pings count ->
        let enough = t.seen.pings + count in
        until t (fun () -> t.seen.pings >= enough)
    | End -> until t (fun () -> false)
  in
  List.iter carry_out steps

let commands_of steps = List.filter_map (function Tell command -> Some command | _ -> None) steps

let shake_hands t ~version ~name ~pipeline steps =
  let early = if pipeline then Client.Connect (1, name) :: commands_of steps else [] in
  send t (String.concat "" (version_bytes version :: List.map (command_text t.form) early));
  let answer = String.get_int64_be (really_input_string t.input 8) 0 in
  say "handshake" [ ("version", Int64.to_string answer) ];
  if answer <> version || version < 0L then exit 2;
  if not pipeline then send_command t (Connect (1, name))

let connect port =
  let socket = Unix.socket PF_INET SOCK_STREAM 0 in
  Unix.setsockopt_float socket SO_RCVTIMEO (float_of_int quiet_seconds);
  Unix.connect socket (ADDR_INET (Unix.inet_addr_loopback, port));
  (Unix.in_channel_of_descr socket, Unix.out_channel_of_descr socket)

let () =
  let version = ref 1L and name = ref "ocaml" and form = ref Plain in
  let pipeline = ref false and acks = ref true and words = ref [] in
  let forms = [ ("plain", Plain); ("hum", Hum); ("bare", Bare) ] in
  let options =
    [
      ("--version", Arg.String (fun text -> version := Int64.of_string text), "N");
      ("--name", Arg.Set_string name, "ID");
      ("--form", Arg.Symbol (List.map fst forms, fun text -> form := List.assoc text forms), "");
      ("--pipeline", Arg.Set pipeline, "");
      ("--no-acks", Arg.Clear acks, "");
    ]
  in
  Arg.parse options (fun word -> words := word :: !words) "omq_client PORT [options] [steps]";
  let port, steps =
    match List.rev !words with [] -> failwith "no port" | port :: rest -> (int_of_string port, steps_of rest)
  in
  let input, output = connect port in
  let seen = { answers = 0; messages = 0; pings = 0 } in
  let t = { input; output; acks = !acks; form = !form; seen; topics = Hashtbl.create 9; known = Hashtbl.create 9 } in
  try
    shake_hands t ~version:!version ~name:!name ~pipeline:!pipeline steps;
    follow t ~pipeline:!pipeline steps
  with
  | End_of_file | Sys_error _ -> say "closed" []; exit (if List.mem End steps then 0 else 1)
  | Violation text -> say "violation" [ ("text", json_string text) ]; exit 3
  | Sys_blocked_io -> say "silence" []; exit 4
