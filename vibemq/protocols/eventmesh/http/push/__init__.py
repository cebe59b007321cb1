"""Subscriptions by HTTP, and the pushes to their URLs.

hub            who is subscribed, and as whom
known          the subscriptions, in memory
registry       what is kept of them, in a queue
heartbeats     subscriptions that end because nothing is heard of them
exchanges      requests of several topics: in turns, and always answered
consumers      who pushes: a consumer for each user, group and topic
openings       the way of a group to its consumer
slots          fair shares of the pushes that are under way
groups         messages of one group on their way to its URLs
requests       a message as the form that is posted
answers        what a subscriber's answer means
inner_session  how all of it speaks with the engine
"""
