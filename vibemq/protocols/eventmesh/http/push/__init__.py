"""Subscriptions by HTTP, and the pushes to their URLs.

hub            who is subscribed, and as whom
registry       what is kept of it, in a queue
exchanges      requests of several topics: in turns, and always answered
openings       the way of a group to its consumer
slots          fair shares of the pushes that are under way
groups         messages of one group on their way to its URLs
requests       a message as the form that is posted
answers        what a subscriber's answer means
inner_session  how all of it speaks with the engine
"""
